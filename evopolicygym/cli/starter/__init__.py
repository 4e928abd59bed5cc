"""The files that ``init`` starts from: a Policy that fits any space, a run spec, a README."""

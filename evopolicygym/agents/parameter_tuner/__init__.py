"""The process behind ``ParameterTuner``: CMA-ES over the numbers of ``program/params.json``.

It is an Agent like any other. It knows its workspace and the command ``evopolicygym-session``, nothing of the Host.
"""

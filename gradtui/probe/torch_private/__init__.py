"""The private and undocumented names of PyTorch that gradtui uses, one file per subject.

This package owns what may break with a new version of PyTorch. Other packages import from its files directly.
"""

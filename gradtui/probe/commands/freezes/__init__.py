"""A freeze with all its consequences: what is frozen, checked, held, verified, taken up from a saved state, and undone.

`trainability.py` has the order: plan one `Change`, check it (`preconditions.py`), apply it (`requires_grad.py`), record it
(`freeze_registry.py`). `row_freezes.py` freezes rows of a parameter while the others train; `probe/frozen/frozen_rows.py`
holds them.
"""

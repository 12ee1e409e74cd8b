"""`gradtui.watch` for scripts and notebooks: a watched training, its live table, and the receipts of its commands."""

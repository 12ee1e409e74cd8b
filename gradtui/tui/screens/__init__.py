"""The dashboard's screen and its dialogs."""

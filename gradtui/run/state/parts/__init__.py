"""What `RunState` is made of: plain data of one subject each, which the reducer fills. A part knows no other state."""

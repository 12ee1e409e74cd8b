"""Where the time goes: in modules, in parts of a step, in small operations; what is processed in a second; what is left."""

"""Follow calls that scripts make seldom: loading and saving states, making optimizers and schedulers.

Each part notes what a call was given, with weak references only, and reports it between steps, once the models are listed.
"""

from gradtui.probe.script_calls.parts import ScriptCallParts
from gradtui.probe.script_calls.run_length import RunLength

__all__ = ["RunLength", "ScriptCallParts"]

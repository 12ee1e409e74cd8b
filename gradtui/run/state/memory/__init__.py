"""The memory of the run: now, at its peak, over the phases of a step and over steps, who holds it, and on which device."""

"""Observe and change live torch objects. Modules run on the training thread unless they say otherwise.

The life of a step, through the packages (paths are relative to this one):

1. **Hooks.** `hooks/torch_hooks.py` installs the wrappers, `hooks/module_calls.py` that of module calls. A wrapper calls
   gradtui through `HookSet.run`, or `run_bare` for calls of nested modules: both time the call and catch what it raises. In
   buffered steps it only appends to a list. Each block `with hooks.guarded(part):` keeps the failure of one part from the
   others.

2. **The sequence.** `Probe` receives `on_forward_pre/post`, `on_backward_pre/post`, `on_step_pre/post` and
   `on_zero_grad_pre/post`; `ProbeParts` what needs no order, such as `on_next_batch`, `on_batch` and `on_save_pre/post`.
   `steps/phase_tracker.py` derives the phases and decides where each begins and ends, `steps/step_counter.py` counts,
   `steps/call_order.py` notes which calls came between two steps. gradtui handles the events of the thread that runs
   backward, and, while that thread waits in backward, the optimizer steps on the threads of the autograd engine.
   `tests/probe/test_event_sequence.py` lists the events of a step for eleven kinds of loop.

3. **The boundary** is the moment between two steps at which commands are applied: after an optimizer's outermost step has
   ended, the first event of the next iteration (a training forward, a backward of bare functions, or a step with a closure).
   There `Probe._on_boundary` applies waiting commands, holds a paused run, and decides whether the next step is sampled. A
   replay of a CUDA graph is a boundary of its own. Without an optimizer each backward counts as a step.

4. **Models.** `model/discovery.py` finds models and optimizers, `model/model_registry.py` lists them in a `ModuleTree`. After
   a new listing `model/index_mapping.py` moves what the probe knows to the new indexes, and `gradtui/run/reducer/relisting.py`
   does the same for the state. Events with indexes carry the number of their listing, and the reducer drops those of another
   one.

5. **Every step** has its loss (`gradients/loss_reader.py`), its gradient norms and its memory totals
   (`memory/step_totals.py`). No budget governs these: they are read less often only where they take more than 3 % of a step
   (`runtime/reading_interval.py`). In a simple loop, steps that are not sampled are buffered (`steps/hook_buffer.py`) and
   replayed every 200 ms (`steps/event_replay.py`, `gradients/buffered_replay.py`). Any other event first replays the buffer.

6. **Sampled steps** (`sampling/step_sampler.py`, `sampling/sampled_step.py`). `autograd/saved_tensors.py` walks the graph at
   the beginning of backward, `memory/phase_memory.py` takes the bytes of every category at the end of each phase, and
   `sampling/parameter_states.py` decides the state of each parameter: it alone decides F (frozen, a gradient passes through
   its module) or C (frozen, none passes). Now and then and on request one step is profiled, on the CPU by
   `memory/memory_profiler.py`, on CUDA by `memory/cuda_memory_profiler.py`. No step is sampled while another living thread
   has run a backward: autograd writes `.grad` without Python's lock.

7. **The schedule.** `runtime/sampling_schedule.py` spaces samples so that their cost stays within the budget (`--budget`).
   The first 16 steps are sampled until that takes half a second together, and so are the steps after a change. A large
   model's first samples wait until they cost little (`sampling/first_sample.py`).

8. **Ranks.** `sampling/replicas.py` measures what all ranks must have in common, at the same steps
   (`runtime/common_steps.py`). `gradtui/run/reducer/divergence.py` compares them in the viewer of the job.

9. **Errors.** `memory/oom_report.py` writes who held the memory when an allocation failed. `gradients/nonfinite.py` finds
   where the first NaN or Inf came from.
"""

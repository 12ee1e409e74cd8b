"""Why a command is refused, as clauses after a colon: `cannot freeze encoder: it has no parameters`. Pure.

A name in capitals is a clause. A name in small letters is a function that fills in paths, class names and numbers.
"""

from __future__ import annotations

from gradtui.run.state.tree.selection import NO_MODEL as NO_MODEL

_ERROR = "{0.__class__.__name__}: {0}"

# Any command, and undo.
already = "{} is already {}".format
cannot_be_undone = "{} cannot be undone: {}".format
failed = f"it failed: {_ERROR}".format
is_gone = "{} no longer exists".format
model_replaced = "it changed {}, and the run trains {} now: freeze or unfreeze there".format
step_is_not_torchs = "{} is no optimizer of torch.optim: what its step does without gradients is not known".format
step_is_on_device = "its step is {}".format
step_is_over = "step {:,} is over: this is step {:,}".format
breakpoint_is_gone = "there is no breakpoint {}".format
ALREADY_SO = "that is already the case"
IS_PARAMETER = "it is a parameter, not a module"
NOTHING_LEFT = "everything that it changed no longer exists or was changed again"
NOTHING_TO_UNDO = "there is nothing to undo"
REPLAYS_CUDA_GRAPH = "the steps replay a CUDA graph: a change would have no effect on what it captured"
SET_BACK = "the script has set it back itself"
TORCH_VERSION = "gradtui cannot do that with this version of PyTorch"
STEP_FOLLOWS_ANOTHER = "another optimizer has stepped in this iteration"
STEP_HAS_CLOSURE = "its closure computes the gradients within the step"
STEP_HAS_HOOKS = "other hooks on its step would find no gradients"
STEP_IN_BACKWARD = "it steps within backward"
STEP_IS_SCALED = "a GradScaler decides whether it steps"
NO_OPTIMIZER_STEP = "no optimizer steps: the script updates its parameters itself"
UNKNOWN_COMMAND = "this run does not know this command"

# Several ranks.
one_of_ranks = "this is one of {} ranks: {}".format
CHANGE_ON_ALL = (
    "all ranks must make the same change at the same step; start the job with gradtui torchrun, whose dashboard does so"
)
NOT_CONFIRMED = "not all ranks had accepted it when its step came"
STORE_IS_SLOW = "the store of the process group has not answered before the step came"
missed_a_decision = (
    "the store of the process group did not tell this rank at step {:,} whether the others make a change, and it takes no part "
    "in later ones"
).format
NOT_ON_RANKS = "it can end differently on the ranks"
PAUSE_OF_ONE = "while this one pauses, the others wait for it and may time out"
SHOWN_BY_JOB = "only the viewer of a job that gradtui has launched shows one rank or another"
SAVE_ON_ALL = "all ranks must take part in saving sharded parameters"
STOP_OF_ONE = "if this one stops, the others wait for it forever"
change_under = (
    "under {} parameters are flattened, and a change of one is not supported; fully_shard (FSDP2) supports it".format
)
FREEZE_UNDER_DDP = (
    "DistributedDataParallel waits for the gradients of all parameters; restart with "
    "DistributedDataParallel(…, find_unused_parameters=True) to freeze while it trains"
)
FREEZE_UNDER_STATIC_GRAPH = (
    "DistributedDataParallel has static_graph=True: which gradients it combines is decided; restart without it"
)
unknown_to_ddp = (
    "{} was frozen when DistributedDataParallel was made, which would not combine its gradient over the ranks; restart with it "
    "trainable, and freeze it after the first steps"
).format

# Parameters and modules.
computed_parameter = "{} is computed by a parametrization: freeze or unfreeze its original parameters".format
inference_parameter = "{} was created in inference mode: its requires_grad cannot be changed".format
lazy_parameter = "{} has no shape yet: a lazy module sets it in its first forward".format
not_in_models = "{}: not in any model of this run".format
not_floating_point = "{} is {}: only floating point and complex tensors can require gradients".format
train_overridden = "the train() of {} does not change its mode".format
NO_GRADIENTS = "no parameter has a gradient at this step boundary: the script clears them itself"
NO_PARAMETERS = "it has no parameters"
NOTHING_FROZEN = "no command has frozen a parameter"
nothing_to_restore = "nothing in {} is frozen by a command: the script has frozen what does not train".format
NOTHING_TRAINS = "nothing would train: loss.backward() would fail"
JUST_UNFROZEN = " (a parameter that was just unfrozen counts once a step has shown that it gets a gradient)"
UPDATED_BY_SCRIPT = "this script updates its parameters itself, by code that may not expect .grad to be None"

# Rows of a parameter.
rows_of_one = "rows are of one parameter, and {} has {}: name one, such as {}".format
rows_are_all = "these are all {:,} rows: freeze {} itself".format
ROWS_OF_FROZEN = "it is frozen as a whole: unfreeze the rows that are to train"
rows_together = "{} {}, so no rows of it can be held".format
no_rows = "{} is a single number: it has no rows".format
rows_are_wrapped = "{} holds its values in other tensors, of which gradtui does not know the rows".format
ROWS_ARE_SHARDED = "its rows are sharded over the ranks: each has others"
ROWS_BY_SCRIPT = "this script updates its parameters itself, by code that gradtui cannot keep from some of the rows"

# Optimizers and their param groups.
has_no_setting = "{} has no {}".format
left_without_parameter = "this would leave {} without a trainable parameter: {}".format
may_step_in_backward = "optimizers may step within backward here: unfreeze {} after the first step".format
no_complex = "{} takes no complex parameters".format
no_optimizer_for = "no optimizer can take {}: {}".format
no_sparse = "{} takes no sparse gradients".format
no_sparse_with_decay = "{} takes no sparse gradients together with weight decay".format
breaks_its_numbers = "a {} of {:g} would break the run: {} ends at {:g}".format
breaks_schedule = "{} would scale its rates with it, up to {:g}, which would break the run".format
breaks_rate = "the learning rate would become {:g}, which would break the run".format
only_matrices = "Muon takes only 2D parameters, and this one is {}D".format
owner_cannot_train = "the optimizer that owns {} cannot train it: {}".format
rate_is_zero = "the learning rate is 0, and {} would set it again: change it when it is no longer 0".format
several_elements = "the {} of this group is a tensor with several elements".format
state_not_saved = f"the dropped optimizer state could not be saved: {_ERROR}".format
steps_in_backward = "optimizers step within backward here: they would change {} while backward still needs it".format
group_has_no_rate = "the learning rate of {} is 0 now: set this one when it is no longer 0".format
rate_is_read_on_device = (
    "the learning rate of {} is a tensor, or its step may be captured: it cannot have two rates".format
)
BACKWARD_MAY_FAIL = "backward of its loss may fail"
DECAYS_WITH_ITS_GROUP = "its weight decay is that of the group that it was taken from: name that one"
DIVIDES_ITS_GROUPS = "ZeroRedundancyOptimizer divides its groups among the ranks itself"
LBFGS_HAS_ONE_GROUP = "LBFGS has one learning rate for all its parameters"
LBFGS_HISTORY = "LBFGS keeps a history of the parameters that it began with"
LBFGS_MOVES_FROZEN = "LBFGS also moves frozen parameters, in a direction that it computes from its history"
NO_OPTIMIZER_HAS_IT = "no optimizer has a parameter of it"
ONLY_SPARSE = "SparseAdam takes only sparse gradients, and those of this parameter are dense"
SCALER_FAILS = "GradScaler would raise an error"

# Activation checkpointing, and its trial.
unknown_type = "it has an argument of type {}, which a second forward might change".format
no_forward = "a {} has no forward: checkpoint the modules in it".format
communicates = "{} in it communicates in each forward, and a trial would do so again".format
not_tried_on_all = "not all ranks have called it with autograd recording in {} steps".format
on_rank = "rank {}: {}".format
unknown_to_rank = (
    "{}, so this rank does not know whether the others checkpoint it: the weights are the same either way".format
)
not_called = "it was not called with autograd recording in {} steps".format
second_forward_raised = "a second forward raised {}".format
trial_failed = f"the trial failed: {_ERROR}".format
within_checkpointed = "it is within {}, which is checkpointed".format
COMPILED = "it belongs to compiled code: torch.compile decides what that saves for backward"
GATHERS = (
    "fully_shard gathers its parameters at each call of it, and a trial would do so again: checkpoint the modules in it"
)
INPUT_OVERWRITTEN = "its input is overwritten before backward, so backward could not compute it again"
SECOND_OUTPUT_DIFFERS = "a second forward gave another output"
SHARDED = "its parameters are sharded: each second forward would gather them from all ranks"
TORCHSCRIPT = "it contains TorchScript, which gradtui does not checkpoint"
WHOLE_MODEL = "checkpointing the whole model saves nothing: backward would keep all activations again at once"
WRITES_TO_INPUT = "it writes to its input (as `inplace=True` does), so backward could not compute it again"

# A try.
AHEAD_OF_STEP = (
    "the script takes more than one batch before the backward that uses it, so no side could begin with the same one: let one "
    "batch have all that a step uses (batch_size, or zip of several DataLoaders), and take it at most one step ahead; workers "
    "of a DataLoader load ahead without that"
)
batches_too_large = "{:,} batches take about {}, and the run may keep {}: try fewer steps".format
ASIDE_OF_SEVERAL = "a step takes batches of several DataLoaders"
ASIDE_IS_STREAM = "the data set is a stream or has no length"
ASIDE_IS_OTHER = (
    "those of the data set that the script evaluates with have other keys, types or dimensions than those of training"
)
ASIDE_IS_LARGER = "those of the data set that the script evaluates with are larger than those of training"
ASIDE_IS_SMALL = "the data set that the script evaluates with has not enough samples for two batches of training's size"
ASIDE_RECOMPILES = "torch.compile would compile the model again for eval mode"
ASIDE_HAS_NO_ROOM = "they would take too much memory"
aside_not_loaded = f"loading them raised {_ERROR}".format
EPOCH_CHANGES_RUN = (
    "at the end of the epoch the script changes learning rates, schedulers or weights, which a side cannot repeat: try at most "
    "as many steps as are left of an epoch"
)
LOADERS_END = "one of several DataLoaders has ended: try fewer steps than are left of the shortest one"
NO_LOADER = (
    "no batch of a DataLoader has been used yet, and only its batches can be given to the run again: ask after the first step, "
    "or let torch.utils.data.DataLoader yield the batches (with batch_size=None it yields what the data set has)"
)
NO_LOADER_LOOP = (
    "the steps take their batches from no DataLoader's iterator that continues from step to step: loop over the DataLoader, or "
    "call next on one iter(loader), not on a new one in each step"
)
no_such_side = "it has no side {} that has come to its end; 0 is that without a change".format
of_change = "{}: {}".format
NO_TRY = "no try is under way"
OTHER_ITERATOR = "the loop has gone on with another iterator: try fewer steps than an epoch has"
RUN_ENDED = "the run ended before it was over"
schedule_is_due = (
    "the schedule has a change after {:,} of its {:,} steps: ask after that change, or for fewer steps or changes"
).format
too_few_steps_left = (
    "it takes {:,} steps, and the script makes only about {:,} more: ask for fewer steps or changes"
).format
TRY_BY_HAND = (
    "no optimizer steps, so there are no steps to compare: let an optimizer of torch.optim update the parameters"
)
TRY_ON_RANKS = (
    "a try is for one process: start the script by itself on one device (CUDA_VISIBLE_DEVICES=0 gradtui try … train.py)"
)
TRY_STEPS_IN_BACKWARD = (
    "optimizers step within backward, so a freeze could not be taken back: step after backward while you try"
)
TRY_UNDER_WAY = "a try is under way; gradtui do end-try ends it"
TRY_WAS_ENDED = "it was ended"

# Files and measurements.
batch_is_gone = (
    "the script has released the batch of step {:,}; --pause-at-spike and --pause-at-nan hold the run while it is still there"
).format
batch_not_recorded = (
    "the batch of step {:,} was not recorded; with --pause-at-spike or --pause-at-nan each one is, until the run is paused"
).format
batch_too_large = "its tensors have {}, and gradtui writes {} at most".format
file_is_there = "{} is there; choose another name, or replace it (--force)".format
not_a_file = "{} is not a file".format
not_written = "{} could not be written: {}".format
not_profiled = "gradtui profiles memory on the CPU and on CUDA only, and the models are on {}".format
NO_HISTORY = "the CUDA allocator's history is not free: the script records it, or another allocator is in use"
ALREADY_NOT_FINITE = "the newest values are already not finite; Pause holds the run"
GRAPH_ALLOCATES_NOTHING = (
    "the steps replay a CUDA graph, which allocates nothing: what it uses was allocated when it was captured"
)
NO_DIRECTORY = "this run has no directory for files"
NO_FILE_NAME = f"{NO_DIRECTORY}: name a file"
ONLY_ON_CUDA = "only the CUDA allocator has one, and this run does not use CUDA"
PROFILE_RECOMPILES = "this process has compiled code, and a profile would make torch.compile compile it again"

# A kept state, and the return to it.
not_kept = "{} is not kept; kept are the steps {}".format
NOTHING_KEPT = "no state is kept"
UNDONE_SINCE = "a change that was in force then has been undone since: make it again, then return"
not_undone_for_return = "a change made since cannot be undone: {}".format
not_equal_after_return = "the run is not what it was at step {:,}: {} differ".format
no_room_for_state = "a copy takes {}, and all kept states together may take {} of host memory".format
incomplete_state = "a return could not be complete: {}".format
no_copy_on_ranks = "this is one of {} ranks, which keep no state by themselves".format
COPIES_HAVE_FAILED = "copies of the run have failed"
copy_is_slow = "a copy of the run takes {} and {}, and one that nobody has asked for may take {}".format
copy_is_large = "a copy of the run takes {}, and one that nobody has asked for may take {} of host memory".format
KEEPS_NONE = 'no state is kept in host memory: the setting is keep = "off"; a file takes one (keep --to FILE)'
no_memory_for_copy = "a copy takes {}, and {} of host memory are free".format
no_room_on_disk = "it takes {}, and {} are free in {}".format
NEWEST_NOT_KEPT = "this rank has not kept the newest state: name a step that all ranks have kept"
state_is_elsewhere = "{} keeps weights and optimizer state in memory of its own, which a copy would not have".format
state_is_its_own = (
    "{} (a {}) steps and has tensors, and is no optimizer of torch: a copy would not have its state".format
)
REPLAYS_COMPILED = "compiled code replays CUDA graphs (reduce-overhead), whose inputs have fixed places: run without it"
not_in_file = "{}: keep it in host memory instead".format

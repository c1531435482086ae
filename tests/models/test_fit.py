"""A fitted start: equal to a plain transcription in numpy, kept only where it helps, and refused by name elsewhere."""

import copy

import numpy as np
import pytest
import torch

from limbeck.errors import ModelError
from limbeck.models import start
from limbeck.models.families import blocks, shape_of
from limbeck.models.family_table import families
from limbeck.models.fit_options import FitOptions
from limbeck.models.start_fit import targets_of
from limbeck.models.start_step import StartSettings
from limbeck.models.students import build_student, student_config
from tests.support import models as tiny

LAYERS = (1, 2, 4)
TARGETS = (1, 3, 4)
"""The targets of these layers by default."""
POST_NORM = ("bert", "ernie", "roberta", "xlm-roberta", "camembert", "electra", "distilbert", "mpnet", "nomic_bert")
PRE_NORM = ("modernbert", "eurobert", "llama", "qwen3")
FITTED = POST_NORM + PRE_NORM
CANNOT = ("albert", "gpt2", "deberta-v2", "gte")
"""The last two have no row in the table of families, like all that limbeck finds by their structure."""


def batches_of(family, *, count=6, rows=16):
    """Batches of random text, the last of which is held out."""
    return [tiny.tiny_batch(family, rows=rows, length=20, seed=number) for number in range(count)]


def reader(batches):
    """A reader of all batches but the last, or of the last alone."""
    return lambda *, tokens=None, held_out=False: batches[-1:] if held_out else batches[:-1]


def start_student(teacher, batches, *, fit, layers=LAYERS, **changes):
    """A student in float64 that starts from layers, fitted unless `fit` is None, and the record of its start."""
    blueprint = tiny.blueprint_like(shape_of(teacher.config), len(layers)).model_copy(update=changes)
    config = student_config(blueprint, teacher.config, source_layers=list(layers))
    student = build_student(config, seed=9).double()
    steps = {} if fit is None else {"fit": fit}
    settings = StartSettings(list(layers), seed=3, steps=steps)
    texts = start.read_text(teacher, reader(batches))
    return student, start.start_student(student, teacher, settings, texts=texts)


# A plain transcription in numpy: the residual r of every token is caught on its way into the feed-forward part, and the
# rest is done by hand, as the formulas of the block and of the fit have it.


def array(tensor):
    return tensor.detach().double().numpy()


def gelu(values):
    return array(torch.nn.functional.gelu(torch.from_numpy(values)))


def layer_norm(values, norm):
    mean = values.mean(-1, keepdims=True)
    scale = np.sqrt(values.var(-1, keepdims=True) + norm.eps)
    shift = 0.0 if norm.bias is None else array(norm.bias)
    return (values - mean) / scale * array(norm.weight) + shift


def bert_features(block, residual):
    dense = block.intermediate.dense
    return gelu(residual @ array(dense.weight).T + array(dense.bias))


def modernbert_features(block, residual):
    inputs, gate = np.split(layer_norm(residual, block.mlp_norm) @ array(block.mlp.Wi.weight).T, 2, axis=-1)
    return gelu(inputs) * gate


def gated_features(block, inputs):
    gate = inputs @ array(block.mlp.gate_proj.weight).T
    return gate / (1 + np.exp(-gate)) * (inputs @ array(block.mlp.up_proj.weight).T)


def eurobert_features(block, residual):
    norm = block.post_attention_layernorm
    scale = np.sqrt((residual**2).mean(-1, keepdims=True) + norm.variance_epsilon)
    return gated_features(block, residual / scale * array(norm.weight))


PARTS = {
    # The module that reads the residual, the features, the output map, the norm of a block, and the final norm.
    "bert": ("intermediate", bert_features, "output.dense", "output.LayerNorm", None),
    "nomic_bert": ("mlp", gated_features, "mlp.down_proj", "post_mlp_layernorm", None),
    "modernbert": ("mlp_norm", modernbert_features, "mlp.Wo", None, "final_norm"),
    "eurobert": ("post_attention_layernorm", eurobert_features, "mlp.down_proj", None, "norm"),
}


def transcription(family, teacher, copied, batches, *, ridge, pooled):
    """Fit the copied student in place, layer by layer."""
    reads_residual, features_of, map_path, norm_path, final_path = PARTS[family]
    for layer, target in enumerate(TARGETS, start=1):
        is_last = layer == len(TARGETS)
        block = blocks(copied)[layer - 1]
        linear = block.get_submodule(map_path)
        norm = None
        if norm_path is not None:
            norm = block.get_submodule(norm_path)
        elif is_last:
            norm = copied.get_submodule(final_path)
        left, right, means_left, means_right = [], [], [], []
        for batch in batches[:-1]:
            caught = []
            handle = block.get_submodule(reads_residual).register_forward_pre_hook(
                lambda module, arguments, caught=caught: caught.append(array(arguments[0]))
            )
            copied(**batch)
            handle.remove()
            with torch.no_grad():
                states = array(teacher(**batch, output_hidden_states=True).hidden_states[target])
            for text, mask in enumerate(array(batch["attention_mask"]).astype(bool)):
                r = caught[0][text][mask]
                t = states[text][mask]
                f = features_of(block, r)
                ones = np.ones((len(f), 1))
                bias = 0.0 if linear.bias is None else array(linear.bias)
                present = f @ array(linear.weight).T + bias
                z = r + present
                is_rms = family == "eurobert"
                mu = 0.0 if is_rms else z.mean(-1, keepdims=True)
                epsilon_of = copied.get_submodule(final_path) if norm is None else norm
                epsilon = epsilon_of.variance_epsilon if is_rms else epsilon_of.eps
                sigma = np.sqrt(((z - mu) ** 2).mean(-1, keepdims=True) + epsilon)
                if norm is None:
                    wanted = t - r
                else:
                    beta = 0.0 if getattr(norm, "bias", None) is None else array(norm.bias)
                    wanted = (t - beta) / array(norm.weight) * sigma - r + mu
                rows = np.concatenate([f, ones], -1) / sigma
                # The ridge pulls towards the copied map, so what it gives already is taken off.
                values = wanted / sigma - present / sigma
                left.append(rows)
                right.append(values)
                means_left.append(rows.mean(0))
                means_right.append(values.mean(0))
        a, b = np.concatenate(left), np.concatenate(right)
        if pooled and is_last:
            weight = np.sqrt(pooled * len(a) / len(means_left))
            a = np.concatenate([a, weight * np.stack(means_left)])
            b = np.concatenate([b, weight * np.stack(means_right)])
        width = linear.in_features
        if linear.bias is None:
            a = a[:, :width]
        # Ridge regression as least squares with a further row for each weight, whose value is to be 0.
        ridge_rows = np.sqrt(ridge * (a[:, :width] ** 2).sum() / width) * np.eye(width, a.shape[1])
        change, *_ = np.linalg.lstsq(
            np.concatenate([a, ridge_rows]), np.concatenate([b, np.zeros((width, b.shape[1]))]), rcond=None
        )
        with torch.no_grad():
            linear.weight += torch.from_numpy(change[:width].T)
            if linear.bias is not None:
                linear.bias += torch.from_numpy(change[width])


@pytest.mark.parametrize("pooled", [0.0, 0.7])
@pytest.mark.parametrize("family", PARTS)
def test_a_fit_is_the_plain_transcription(family, pooled):
    """Norms behind the blocks, also with gated features, norms before them, and root mean square norms."""
    teacher = tiny.tiny_model(family).double()
    batches = batches_of(family, count=8, rows=48)
    fitted, record = start_student(teacher, batches, fit={"ridge": 0.02, "pooled": pooled})
    assert (record.fit.targets, record.fit.used) == (list(TARGETS), True)
    expected, _ = start_student(teacher, batches, fit=None)
    copied = copy.deepcopy(expected.state_dict())
    transcription(family, teacher, expected, batches, ridge=0.02, pooled=pooled)
    for name, tensor in fitted.state_dict().items():
        assert torch.allclose(tensor, expected.state_dict()[name], rtol=0, atol=1e-6), name
    # The output maps of layers 2 and 3 changed, and nothing else.
    changed = [name for name, tensor in fitted.state_dict().items() if not torch.equal(tensor, copied[name])]
    assert {name.split(PARTS[family][2])[0] for name in changed} == {
        f"{path}." for path, module in fitted.named_modules() if module in blocks(fitted)[1:]
    }
    assert set(changed) <= set(record.projected) and not set(changed) & set(record.copied)


@pytest.mark.parametrize("family", FITTED)
def test_every_family_with_an_output_map_is_fitted_or_left_as_copied(family):
    teacher = tiny.tiny_model(family).double()
    batches = batches_of(family, count=10, rows=32)
    student, record = start_student(teacher, batches, fit={"ridge": 0.05})
    copied, _ = start_student(teacher, batches, fit=None)
    errors = [error_of(model, teacher, batches[-1]) for model in (student, copied)]
    assert errors[1] == pytest.approx(record.fit.error_as_copied)
    assert errors[0] == pytest.approx(min(record.fit.error, record.fit.error_as_copied))
    assert record.fit.used == (record.fit.error < record.fit.error_as_copied)


def error_of(student, teacher, batch):
    """The squared error of the last hidden states, as a share of their variance."""
    with torch.no_grad():
        is_real = batch["attention_mask"].bool()
        ours = student(**batch).last_hidden_state[is_real]
        theirs = teacher(**batch).last_hidden_state[is_real]
    return float((ours - theirs).square().sum() / (theirs - theirs.mean(0)).square().sum())


def test_a_fit_that_does_not_help_leaves_the_copied_layers_and_says_so():
    teacher = tiny.tiny_model("modernbert").double()
    # About as many tokens as an output map has inputs, and hardly a ridge: the fit learns them by heart.
    batches = [tiny.tiny_batch("modernbert", rows=12, length=20, seed=7), *batches_of("modernbert", count=1)]
    student, record = start_student(teacher, batches, fit={"ridge": 1e-9})
    copied, without = start_student(teacher, batches, fit=None)
    assert record.fit.error > record.fit.error_as_copied and not record.fit.used
    for name, tensor in student.state_dict().items():
        assert torch.equal(tensor, copied.state_dict()[name]), name
    assert record.copied == without.copied
    assert "tokens was left out: on text that it had not read, its error was" in record.summary


def test_a_fit_is_the_same_again_and_leaves_teacher_and_random_state_alone():
    teacher = tiny.tiny_model("bert")
    before = copy.deepcopy(teacher.state_dict())
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    (first, _), (again, _) = (start_student(teacher, batches_of("bert"), fit={}) for _ in range(2))
    assert torch.equal(torch.rand(2), expected)
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name
    for name, tensor in teacher.state_dict().items():
        assert torch.equal(tensor, before[name]), name


@pytest.mark.parametrize(("most_bytes", "passes"), [(2**30, 2), (0, 4)])
def test_the_teacher_reads_each_text_once_where_its_states_are_small(monkeypatch, most_bytes, passes):
    teacher = tiny.tiny_model("bert").double()
    batches = batches_of("bert")
    expected, _ = start_student(teacher, batches, fit={})
    monkeypatch.setattr("limbeck.models.start_fit._MOST_KEPT_BYTES", most_bytes)
    reads = []
    read_text = start.read_text

    def counting_reader(source, reader_of_batches):
        read = read_text(source, reader_of_batches)
        return lambda *args, **options: reads.append(options) or read(*args, **options)

    monkeypatch.setattr(start, "read_text", counting_reader)
    student, _ = start_student(teacher, batches, fit={})
    # The text and the held-out text once each, or in every pass. The first layer needs no fit: there are two of each.
    assert len(reads) == passes
    for name, weight in student.state_dict().items():
        torch.testing.assert_close(weight, expected.state_dict()[name], rtol=0, atol=0)


def test_padding_takes_no_part():
    """Wider padding changes the rounding of a forward, and nothing else."""
    teacher = tiny.tiny_model("bert").double()
    batches = batches_of("bert")
    padded = [
        {
            "input_ids": torch.nn.functional.pad(batch["input_ids"], (0, 9), value=5),
            "attention_mask": torch.nn.functional.pad(batch["attention_mask"], (0, 9)),
        }
        for batch in batches
    ]
    student, _ = start_student(teacher, batches, fit={"pooled": 1.0})
    again, _ = start_student(teacher, padded, fit={"pooled": 1.0})
    for name, tensor in student.state_dict().items():
        assert torch.allclose(tensor, again.state_dict()[name], rtol=0, atol=1e-9), name


def test_layers_that_give_their_targets_are_left_alone():
    teacher = tiny.tiny_model("bert").double()
    student, record = start_student(teacher, batches_of("bert"), fit={}, layers=(1, 2, 3, 4))
    assert record.fit is None
    for name, tensor in student.state_dict().items():
        assert torch.equal(tensor, teacher.state_dict()[name]), name


def test_a_narrower_student_is_fitted_along_the_directions_that_it_keeps():
    teacher = tiny.tiny_model("bert").double()
    batches = batches_of("bert", count=10, rows=32)
    student, record = start_student(teacher, batches, fit={"ridge": 0.1}, hidden=24, heads=4, ffn=48)
    assert shape_of(student.config).hidden == 24
    assert record.fit.error < record.fit.error_as_copied


@pytest.mark.parametrize(
    ("layers", "targets"),
    [((1, 2, 4), [1, 3, 4]), ((1, 2, 3), [1, 2, 4]), ((2, 3, 4), [2, 3, 4]), ((4,), [4]), ((3, 1, 1), [3, 1, 4])],
)
def test_default_targets_are_what_the_next_copied_layer_read(layers, targets):
    assert targets_of(FitOptions(), layers, shape_of(tiny.tiny_config("bert"))) == targets


@pytest.mark.parametrize(
    ("family", "layers", "targets", "message"),
    [
        ("bert", (1, 4), [4], "has 1 layers of the teacher, but the student has 2"),
        ("bert", (1, 4), [1, 5], "has layer 5, but this teacher's layers are 1 to 4"),
        ("modernbert", (1, 4), [4, 4], "has passed a final norm"),
        ("modernbert", (1, 4), [1, 3], "set the last target to 4"),
    ],
)
def test_targets_that_cannot_be_are_refused(family, layers, targets, message):
    with pytest.raises(ModelError, match=message):
        start_student(tiny.tiny_model(family), batches_of(family), fit={"targets": targets}, layers=layers)


def test_every_listed_family_is_either_fitted_or_refused():
    assert set(FITTED).isdisjoint(CANNOT)
    assert set(families) <= {*FITTED, *CANNOT}


@pytest.mark.parametrize("family", CANNOT)
def test_families_that_cannot_be_fitted_are_refused_by_name(family):
    teacher = tiny.tiny_model(family)
    with pytest.raises(
        ModelError, match=rf"cannot fit the layers of {family}.*choose a student of the family bert, ernie"
    ):
        start_student(teacher, batches_of(family), fit={})


def test_random_layers_and_too_little_text_are_refused():
    teacher = tiny.tiny_model("bert").double()
    settings = StartSettings("random", steps={"fit": {}})
    with pytest.raises(ModelError, match=r"initialise\.layers is random"):
        start.check_start(shape_of(tiny.tiny_config(layers=2)), shape_of(teacher.config), settings)
    texts = start.read_text(teacher, lambda *, tokens=None, held_out=False: [] if held_out else batches_of("bert"))
    student = build_student(tiny.tiny_config(layers=2), seed=1)
    with pytest.raises(ModelError, match="too little text"):
        start.start_student(student, teacher, StartSettings([1, 4], steps={"fit": {}}), texts=texts)
    with pytest.raises(
        ModelError, match="The start 'fit' reads text before training, but it has none; leave the start out"
    ):
        start.start_student(student, teacher, StartSettings([1, 4], steps={"fit": {}}))


def test_states_that_are_not_finite_are_refused():
    teacher = tiny.tiny_model("bert")
    batches = batches_of("bert")
    with torch.no_grad():
        # Of layer 3, which the student has no copy of but is fitted to.
        teacher.encoder.layer[2].output.LayerNorm.bias[0] = float("inf")
    with pytest.raises(ModelError, match="not all finite"):
        start_student(teacher, batches, fit={})

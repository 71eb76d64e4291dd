import pytest
import torch
import transformers
from torch import nn

from hessdiag import init
from hessdiag.calculus.moments import weight_moments
from tests.networks import Net, two_paths


def _model():
    return nn.Sequential(nn.Conv2d(8, 32, 5, groups=2), nn.ReLU(), nn.Flatten(), nn.Linear(512, 300), nn.LayerNorm(300))


@pytest.mark.parametrize("scheme", [*init.SCHEMES, *init.VARIANTS])
def test_formulas_are_what_the_initialisations_draw(scheme):
    model = init.apply(_model(), scheme, generator=torch.Generator().manual_seed(0))
    expected = weight_moments(_model(), init=scheme).sq
    for name in ("0.weight", "3.weight"):
        drawn = float(model.get_parameter(name).detach().square().mean())
        assert expected[name] == pytest.approx(drawn, rel=0.06)
    assert expected["3.bias"] == 0.0


def test_defaults_of_pytorch_on_the_meta_device_and_two_names_of_one_weight() -> None:
    real, known = _model(), weight_moments(_model())
    with torch.device("meta"):
        formula = weight_moments(_model())
    assert formula.source == "PyTorch's defaults, by formula"
    assert known.source == "the weights as they are"
    for name, parameter in real.named_parameters():
        assert formula.sq[name] == pytest.approx(float(parameter.detach().square().mean()), rel=0.25), name
    moments = weight_moments(two_paths())
    assert moments.names["alias.weight"] == "layer.weight"


def test_a_model_on_the_meta_device_is_told_what_it_draws_itself() -> None:
    """GPT-2 divides by the root of its depth; a class token is no layer; torch's random state stays as it was."""
    gpt = transformers.GPT2Config(n_embd=64, n_layer=8, n_head=2, vocab_size=99, n_positions=32)
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 96}
    vit = transformers.ViTConfig(image_size=8, patch_size=4, **sizes)
    for kind, config in ((transformers.GPT2LMHeadModel, gpt), (transformers.ViTForImageClassification, vit)):
        real, before = weight_moments(kind(config)).sq, torch.get_rng_state()
        with torch.device("meta"):
            told = weight_moments(kind(config))
        assert torch.equal(torch.get_rng_state(), before)
        assert told.source == "one layer of each kind, drawn as the model does"
        assert told.sq == pytest.approx(real, rel=0.4)
    assert "vit.embeddings.cls_token" in told.sq


def test_an_initialisation_that_takes_no_module_is_not_called_with_one() -> None:
    rule = lambda m, x: m.layer(x)  # noqa: E731
    with torch.device("meta"):
        model = Net(rule, layer=nn.Linear(3, 4), _init_weights=lambda: None)
    assert weight_moments(model).source == "PyTorch's defaults, by formula"
    assert weight_moments(model).sq["layer.weight"] == pytest.approx(1 / 9)

"""`hessdiag describe`: a dry run."""

from hessdiag.cli import options
from hessdiag.cli.saving import show


def describe(
    model: options.Model,
    arg: options.Arg = None,
    evaluate: options.Eval = False,
    init: options.Init = "",
    weights: options.Weights = "",
    weights_key: options.WeightsKey = "",
    in_channels: options.InChannels = None,
    input_size: options.InputSize = "",
    data: options.Data = "",
    batch_size: options.BatchSize = 64,
    loss: options.Loss = "random-quadratic",
    class_dim: options.ClassDim = None,
    output: options.Output = "",
    matrix: options.Matrix = "ggn",
    per: options.Per = "example",
    method: options.Method = "auto",
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    seed: options.Seed = 0,
    verbose: options.Verbose = False,
) -> None:
    """List the blocks of MODEL, what is left out and why, and what measuring them would cost."""
    detail = options.choose_detail(quiet=False, verbose=verbose)
    source = options.model_source(
        model, in_channels=in_channels, input_size=input_size, arg=arg, output=output, evaluate=evaluate
    )
    prepared = options.prepare(
        source,
        init=init,
        weights=weights,
        weights_key=weights_key,
        data=data,
        batch_size=batch_size,
        loss=loss,
        class_dim=class_dim,
        seed=seed,
        device=options.resolve_device(device),
        dtype=options.resolve_dtype(dtype),
    )
    import hessdiag

    batch = prepared.batch
    options_of = {"matrix": matrix, "per": per, "method": method}
    show(hessdiag.describe(prepared.module, batch.inputs, output=source.output, **options_of), json="", detail=detail)

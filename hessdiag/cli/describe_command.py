"""`hessdiag describe`: a dry run."""

from hessdiag.cli import options


def describe(
    model: options.Model,
    arg: options.Arg = None,
    init: options.Init = "",
    weights: options.Weights = "",
    in_channels: options.InChannels = None,
    input_size: options.InputSize = "",
    data: options.Data = "",
    batch_size: options.BatchSize = 64,
    loss: options.Loss = "random-quadratic",
    matrix: options.Matrix = "ggn",
    per: options.Per = "example",
    method: options.Method = "auto",
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    seed: options.Seed = 0,
) -> None:
    """List the blocks of MODEL, what is left out and why, and what measuring them would cost."""
    source = options.model_source(model, in_channels=in_channels, input_size=input_size, arg=arg)
    prepared = options.prepare(
        source,
        init=init,
        weights=weights,
        data=data,
        batch_size=batch_size,
        loss=loss,
        seed=seed,
        device=options.resolve_device(device),
        dtype=options.resolve_dtype(dtype),
    )
    import hessdiag

    print(hessdiag.describe(prepared.module, prepared.batch.inputs, matrix=matrix, per=per, method=method))

"""`hessdiag describe`: a dry run."""

from hessdiag.cli import options


def describe(
    model: options.Model,
    in_channels: options.InChannels = 3,
    input_size: options.InputSize = "",
    batch_size: options.BatchSize = 64,
    matrix: options.Matrix = "ggn",
    per: options.Per = "example",
    method: options.Method = "auto",
) -> None:
    """List the blocks of MODEL, what is left out and why, and what measuring them would cost."""
    import hessdiag
    from hessdiag.study import random_batch, random_network

    source = options.model_source(model, in_channels, input_size)
    network = random_network(source, init="as built", seed=0)
    inputs, _ = random_batch(network, source, batch_size=batch_size, loss="random-quadratic", seed=0)
    print(hessdiag.describe(network, inputs, matrix=matrix, per=per, method=method))

"""Settings of the authors' training code that the paper does not state, as fields of a recipe."""

from ebmlife.recipes.schema import Recipe, as_ebm


def as_authors(recipe: Recipe) -> dict[str, str]:
    """The fields of a resolved recipe to change, as the command line would give them.

    Raw weights are used after training (averages over no update are the weights themselves), gradients are clipped
    weight by weight, batch norm has Keras's momentum, generators without it have a scale and an offset, and the walk
    that follows a rejuvenation is not counted.
    """
    ebm = as_ebm(recipe)
    fields = {"optimizer.ema": "0", "optimizer.clip_by": "weight"}
    if "count_first_walk" in ebm.chains.options:
        fields["chains.count_first_walk"] = "false"
    if ebm.generator is not None and ebm.generator.optimizer is not None:
        fields |= {"generator.optimizer.ema": "0", "generator.optimizer.clip_by": "weight"}
        net = ebm.generator.net.options
        if net.get("batch_norm") is True and "batch_norm_momentum" in net:
            fields["generator.net.batch_norm_momentum"] = "0.01"
        if net.get("batch_norm") is False and "scale_and_offset" in net:
            fields["generator.net.scale_and_offset"] = "true"
    return fields

"""Labels as inputs of a step: some training labels are given to the model, and the loss is on the others alone."""

from dataclasses import replace

from nfdist import seeds
from nfdist.training.batches import Batch


def give_labels(batch: Batch, share: float, seed: int) -> Batch:
    """The batch with a share of its training labels as inputs, which no longer count for the loss.

    Which these are is a function of the seed, the batch's number and the node id, so that worlds of any size agree.
    """
    if share == 0:
        return batch
    labeled, labels = batch.labeled, batch.labels
    key = seeds.derive(seed, "label inputs", batch.number)
    chosen = seeds.choose_nodes(key, batch.node_ids[labeled.to(batch.node_ids.device)], share).to(labeled.device)
    given = labels.new_full((batch.num_nodes, *labels.shape[1:]), -1)
    given[labeled[chosen]] = labels[chosen]
    return replace(batch, labeled=labeled[~chosen], labels=labels[~chosen], given=given)

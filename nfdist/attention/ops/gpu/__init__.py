"""The operations on a device that is told what to do: few large operations, and nothing that waits for an answer.

What the CPU decides by a look at the numbers is here done in a way that is exact at every scale: docs/gpu.md. Plain
torch, so any device runs them.
"""

from nfdist.attention.ops.gpu.attention import attend as attend
from nfdist.attention.ops.gpu.edges import edge_log_likelihood as edge_log_likelihood
from nfdist.attention.ops.gpu.epilogue import add_norm as add_norm
from nfdist.attention.ops.gpu.features import key_logs as key_logs
from nfdist.attention.ops.gpu.features import project as project
from nfdist.attention.ops.gpu.noise import gumbel as gumbel
from nfdist.attention.ops.gpu.noise import keep_mask as keep_mask
from nfdist.attention.ops.gpu.summaries import summarize as summarize

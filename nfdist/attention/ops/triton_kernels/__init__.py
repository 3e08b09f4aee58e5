"""The operations as Triton kernels, for CUDA: one pass over the rows, sums in a fixed order, no wait for an answer."""

from nfdist.attention.ops.triton_kernels.attention import attend as attend
from nfdist.attention.ops.triton_kernels.edges import edge_log_likelihood as edge_log_likelihood
from nfdist.attention.ops.triton_kernels.epilogue import add_norm as add_norm
from nfdist.attention.ops.triton_kernels.features import key_logs as key_logs
from nfdist.attention.ops.triton_kernels.features import project as project
from nfdist.attention.ops.triton_kernels.noise import gumbel as gumbel
from nfdist.attention.ops.triton_kernels.noise import keep_mask as keep_mask
from nfdist.attention.ops.triton_kernels.summaries import summarize as summarize

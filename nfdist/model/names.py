"""The models by name, for whoever must know them before torch is loaded."""

MODEL_NAMES = ("nodeformer", "mlp", "gcn", "sgc", "gat", "mixhop", "jknet", "dropedge", "idgl", "glcn", "vgcn")

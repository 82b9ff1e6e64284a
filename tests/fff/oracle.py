"""Fast feedforward layers as explicit loops in NumPy, float64: one token, one node at a time."""

import math

import numpy as np

from fff.config import FFFConfig


def activation(kind: str, z: float) -> float:
    if kind == "relu":
        return z if z > 0 or math.isnan(z) else 0.0
    return 0.5 * z * (1 + math.erf(z / math.sqrt(2)))


def slope(kind: str, z: float) -> float:
    if kind == "relu":
        return float(z > 0)
    return 0.5 * (1 + math.erf(z / math.sqrt(2))) + z * math.exp(-z * z / 2) / math.sqrt(
        2 * math.pi
    )


def goes_right(cfg: FFFConfig, z: float) -> bool:
    return z >= 0 if cfg.ties == "right" else z > 0


def hard(cfg: FFFConfig, x, w_in, bias, w_out):
    """Returns outputs (T, D), and nodes and logits (T, K, L)."""
    x, w_in, bias, w_out = (np.asarray(a, np.float64) for a in (x, w_in, bias, w_out))
    y = np.zeros_like(x)
    nodes = np.zeros((len(x), cfg.trees, cfg.depth + 1), int)
    logits = np.zeros(nodes.shape)
    for t in range(len(x)):
        for k in range(cfg.trees):
            node = 0
            for level in range(cfg.depth + 1):
                row = k * (2 ** (cfg.depth + 1) - 1) + node
                z = float(np.dot(w_in[row], x[t]) + bias[row])
                y[t] += activation(cfg.activation, z) * w_out[row]
                nodes[t, k, level], logits[t, k, level] = row, z
                node = 2 * node + 2 if goes_right(cfg, z) else 2 * node + 1
    return y, nodes, logits


def hard_gradients(cfg: FFFConfig, x, w_in, bias, w_out, grad_y):
    """Returns the gradients of Σ y · grad_y, with the path held fixed."""
    x, w_in, w_out, grad_y = (np.asarray(a, np.float64) for a in (x, w_in, w_out, grad_y))
    _, nodes, logits = hard(cfg, x, w_in, bias, w_out)
    grads = [np.zeros_like(x), np.zeros_like(w_in), np.zeros(len(w_in)), np.zeros_like(w_out)]
    for t, k, level in np.ndindex(nodes.shape):
        row, z = nodes[t, k, level], logits[t, k, level]
        grad_z = slope(cfg.activation, z) * np.dot(grad_y[t], w_out[row])
        grads[0][t] += grad_z * w_in[row]
        grads[1][row] += grad_z * x[t]
        grads[2][row] += grad_z
        grads[3][row] += activation(cfg.activation, z) * grad_y[t]
    return grads


def soft(cfg: FFFConfig, x, tree, node: int = 0):
    """Returns the mixture for one token by the recursion of the paper."""
    if node >= 2**cfg.depth - 1:
        return leaf(cfg, x, tree, node - (2**cfg.depth - 1))
    right = 1 / (1 + math.exp(-gate(x, tree, node)))
    return right * soft(cfg, x, tree, 2 * node + 2) + (1 - right) * soft(cfg, x, tree, 2 * node + 1)


def soft_in_evaluation(cfg: FFFConfig, x, tree):
    """Returns the output of the one leaf for one token, and its number."""
    node = 0
    while node < 2**cfg.depth - 1:
        node = 2 * node + (2 if goes_right(cfg, gate(x, tree, node)) else 1)
    number = node - (2**cfg.depth - 1)
    return leaf(cfg, x, tree, number), number


def entropy(cfg: FFFConfig, xs, tree) -> float:
    """Returns the gates' entropy summed over tokens and gates, in nats."""
    total = 0.0
    for x in xs:
        for node in range(2**cfg.depth - 1):
            p = 1 / (1 + math.exp(-gate(x, tree, node)))
            total -= p * math.log(p) + (1 - p) * math.log(1 - p)
    return total


def gate(x, tree, node: int) -> float:
    return float(np.dot(tree.gate_ND[node], x) + tree.gate_bias_N[node])


def leaf(cfg: FFFConfig, x, tree, number: int):
    z = np.dot(x, tree.in_FDW[number]) + tree.in_bias_FW[number]
    h = np.array([activation(cfg.activation, float(value)) for value in z])
    return np.dot(h, tree.out_FWD[number]) + tree.out_bias_FD[number]

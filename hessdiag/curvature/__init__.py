"""Norms of Hessian and Gauss-Newton blocks: exactly in output space, or by products in weight space."""

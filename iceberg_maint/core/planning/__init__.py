"""Planning: explicit input files, in batches within the policy's budgets."""

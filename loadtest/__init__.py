"""Load tests that reconcile with the ledger; `bench/` measures us beside other engines. Not in the wheel."""

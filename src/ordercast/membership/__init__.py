"""How an underlay gets from view to view: the contract (`policy`) and the policies that implement it."""

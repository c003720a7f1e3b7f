"""What programs see: nodes, groups, locks and transactions on asyncio. Start reading at `seat.py`."""

"""Whether a request can make its deadline: its limits, the calendar of slots, bookings and who keeps them."""

"""The real worker under virtual time, and the world around it: arrivals, services that fail, a record, figures and charts.

A simulation is an app on a memory store whose clock is the loop's (virtual), a Recorder that watches it, a Service that its handlers
call, and `play`, which feeds jobs and runs workers until all have come to rest. All chance comes from generators the caller seeds.
"""

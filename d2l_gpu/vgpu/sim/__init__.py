"""The simulation by itself: devices, their memory and their clock, without PyTorch.

It needs nothing but Python's standard library, and reads neither a real clock nor files
(but its own recordings) nor anything else from the operating system. So it runs
wherever Python does, even in a browser.

* ``catalogue``: data of GPUs and links, every figure with its source.
* ``clock``: when the host issues work, and when devices and links do it.
* ``commands``: work other than kernels: copies, collectives, waiting.
* ``fabric``: what connects the GPUs of a cluster: links, wiring, network cards.
* ``cluster``: ranks that are recorded one by one, and put on one time axis.
* ``knowledge``: what a rank's host knows to be over as long as no time is known.
* ``critical_path``: what a step of a cluster took its time for.
* ``plans``: training plans of recorded models, simulated in milliseconds, and a search.
  ``plan_schedules`` says what each rank of a pipeline does, ``plan_stages`` what it
  issues for that, by ``plan_commands``, and ``plan_results`` what comes of it.
* ``puzzle``: levels that ask for the fastest plan, each with a grid of others.
  ``puzzle_map`` draws them.
* ``replicas``: the training of networks for images on any GPUs, replayed exactly.
* ``play``: all this for a playground: a setting in, times and pictures out, as JSON.
  ``play_plans`` does it for language models, ``play_replicas`` for images.
* ``recordings``: the models: their kernels, as ``python -m tools.record`` wrote them.
* ``worlds``: commands of ranks that are processes with a host each.
* ``machine``: the devices' memory, the log of copies, and the seams to the clock.
* ``nccl``: which algorithm and protocol NCCL chooses for a collective, and its time.
* ``cudnn``: the algorithms for a convolution, of which the fastest is taken.
* ``allocator``, ``allocator_config``: PyTorch's caching allocator and its settings.
* ``caching``: the machine whose devices have one.
* ``product``: how long one matrix product takes.
* ``report``: tables of what every device and every link did.
* ``timeline``: a drawing of what ran when; ``causes`` says why then.
* ``trace``: the same as a file for chrome://tracing and Perfetto.
* ``memory_use``: what a device's memory is used for over time; ``memory_picture`` draws
  it.
* ``memory_map``: what a caching allocator has taken from a device, and which pieces of
  it are free.
* ``table``, ``units``: tables and quantities in readable form.
* ``drawing``: colours, lettering, ticks and units of all pictures.
"""

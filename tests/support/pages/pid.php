<?php // The pid of the worker.
echo getmypid();

<?php // The worker that answers.
echo getmypid();

<?php

namespace App;

/** A service that keeps its state, because its author thought of classic mode only. */
class CallsSinceBoot
{
    public int $count = 0;
}

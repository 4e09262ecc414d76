<?php

namespace App;

class Visit
{
    public int $calls = 0;
}

<?php

namespace App;

use Symfony\Contracts\Service\ResetInterface;

class CallsSinceReset implements ResetInterface
{
    public int $count = 0;

    public function reset(): void
    {
        $this->count = 0;
    }
}

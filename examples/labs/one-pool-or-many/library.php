<?php

function greeting(): string
{
    return 'something';
}

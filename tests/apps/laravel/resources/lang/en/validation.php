<?php

return [
    'required' => 'Please fill in the :attribute.',
    'max' => ['string' => 'The :attribute is too long.', 'file' => 'The :attribute is too big.'],
];

<?php

header('Content-Type: application/json');
echo json_encode(['code' => 0, 'message' => 'success']);

<?php throw new RuntimeException('no such database');

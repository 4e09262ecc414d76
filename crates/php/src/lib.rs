//! php

//! Judges differences: noise, or not? Pure; random numbers come from the lab's seed.
//!
//! - [`bars`]: is a promise kept?
//! - [`interval`]: means with bootstrap intervals, and comparisons of two stacks
//! - [`order`]: the random order of stacks in each round
//! - [`summarize`]: summaries, comparisons and the verdict's inputs, from all runs

pub mod bars;
pub mod interval;
pub mod order;
pub mod summarize;

pub use interval::{Difference, Settings, compare_paired, compare_unpaired, estimate};

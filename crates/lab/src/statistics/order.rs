//! The random order of stacks: another one in each round, so that no stack always runs on the warmer machine.

use fastrand::Rng;

/// The order of `stacks` stacks in each of `rounds` rounds. The same seed gives the same order.
pub fn interleaved(stacks: usize, rounds: u32, seed: u64) -> Vec<Vec<usize>> {
    let mut random = Rng::with_seed(seed);
    let round = |_| {
        let mut order: Vec<_> = (0..stacks).collect();
        random.shuffle(&mut order);
        order
    };
    (0..rounds).map(round).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_has_each_stack_once_and_its_own_order() {
        let rounds = interleaved(5, 8, 3);
        for round in &rounds {
            let mut sorted = round.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3, 4]);
        }
        assert!(rounds.iter().any(|round| round != &rounds[0]), "{rounds:?}");
        assert_eq!(rounds, interleaved(5, 8, 3));
    }
}

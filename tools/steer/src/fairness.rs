//! Divides the CPUs among groups of threads when there are too few for all. Pure arithmetic.
//!
//! The kernel divides CPUs among control groups by weight, level by level. Demand alone would say
//! something else: a user with a hundred threads that spin demands a hundred CPUs, and by demand he
//! would get almost all of the machine. [`Groups::due`] limits what a group counts for to what the
//! kernel would let it have.

/// A tree of groups that compete for CPUs.
#[derive(Clone, Debug)]
pub struct Groups(Vec<Group>);

/// A group of a [`Groups`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupId(usize);

#[derive(Clone, Copy, Debug)]
struct Group {
    parent: GroupId,
    weight: f64,
}

impl GroupId {
    /// The group that contains all others.
    pub const ROOT: Self = Self(0);

    /// Index of the group in the order in which groups were added.
    pub(crate) fn at(&self) -> usize {
        self.0
    }
}

impl Groups {
    /// The weight of what was given none.
    pub const USUAL: f64 = 100.0;

    /// The group that contains all others, alone.
    pub fn new() -> Self {
        Self(vec![Group {
            parent: GroupId::ROOT,
            weight: Self::USUAL,
        }])
    }

    /// Adds a group within another one.
    pub fn add(&mut self, parent: GroupId, weight: f64) -> GroupId {
        self.0.push(Group { parent, weight });
        GroupId(self.0.len() - 1)
    }

    /// Number of groups.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Shares of the groups in `cpus`, for the threads that are directly in them; `demand` has what these want. Both
    /// are CPUs, in the order in which groups were added.
    ///
    /// A group gets what it wants, or if its parent has too little for all, its share by weight.
    /// What one does not want is divided among the others. Threads beside groups count as a group
    /// of the usual weight.
    pub fn due(&self, demand: &[f64], cpus: f64) -> Vec<f64> {
        let own = |at: usize| demand.get(at).copied().unwrap_or(0.0).max(0.0);
        let count = self.0.len();
        // Parents come before their children.
        let mut wanted: Vec<f64> = (0..count).map(own).collect();
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); count];
        for (at, group) in self.0.iter().enumerate().skip(1).rev() {
            wanted[group.parent.0] += wanted[at];
            members[group.parent.0].push(at);
        }
        let mut due = vec![0.0; count];
        due[0] = cpus.min(wanted[0]);
        for at in 0..count {
            let mut competing: Vec<Claim> = members[at]
                .iter()
                .map(|&member| Claim {
                    of: member,
                    wanted: wanted[member],
                    weight: self.0[member].weight.max(f64::MIN_POSITIVE),
                })
                .collect();
            competing.push(Claim {
                of: at,
                wanted: own(at),
                weight: Self::USUAL,
            });
            for (of, part) in divide(due[at], competing) {
                due[of] = part;
            }
        }
        due
    }
}

impl Default for Groups {
    fn default() -> Self {
        Self::new()
    }
}

/// Claim of a member of a group.
struct Claim {
    of: usize,
    wanted: f64,
    weight: f64,
}

/// Divides `cpus` by weight, and gives none more than it wants.
fn divide(cpus: f64, mut claims: Vec<Claim>) -> Vec<(usize, f64)> {
    // Members that want least for their weight come first: what they leave is for the others.
    claims.sort_by(|a, b| (a.wanted / a.weight).total_cmp(&(b.wanted / b.weight)));
    let mut weight: f64 = claims.iter().map(|claim| claim.weight).sum();
    let mut left = cpus;
    let part = |claim: Claim| {
        let share = left * (claim.weight / weight).min(1.0);
        let part = claim.wanted.min(share);
        weight = (weight - claim.weight).max(f64::MIN_POSITIVE);
        left = (left - part).max(0.0);
        (claim.of, part)
    };
    claims.into_iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn near(found: &[f64], expected: &[f64]) {
        let close = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-9;
        let same = found.len() == expected.len() && found.iter().zip(expected).all(close);
        assert!(same, "{found:?} is not {expected:?}");
    }

    #[test]
    fn what_all_want_is_granted_while_there_is_enough() {
        let mut groups = Groups::new();
        groups.add(GroupId::ROOT, 1.0);
        groups.add(GroupId::ROOT, 1000.0);
        near(&groups.due(&[1.0, 2.0, 5.0], 8.0), &[1.0, 2.0, 5.0]);
    }

    #[test]
    fn a_hundred_threads_count_for_no_more_than_the_share_of_their_group() {
        let mut groups = Groups::new();
        groups.add(GroupId::ROOT, 100.0);
        groups.add(GroupId::ROOT, 100.0);
        near(&groups.due(&[0.0, 100.0, 8.0], 8.0), &[0.0, 4.0, 4.0]);
        near(&groups.due(&[0.0, 100.0, 1.0], 8.0), &[0.0, 7.0, 1.0]);
    }

    #[test]
    fn weights_count_level_by_level() {
        let mut groups = Groups::new();
        let users = groups.add(GroupId::ROOT, 100.0);
        groups.add(GroupId::ROOT, 300.0); // services
        // However much weight a user gives to groups of his own, he gets no more.
        groups.add(users, 10_000.0);
        groups.add(users, 10_000.0);
        let due = groups.due(&[0.0, 0.0, 50.0, 50.0, 50.0], 8.0);
        near(&due, &[0.0, 0.0, 6.0, 1.0, 1.0]);
    }

    /// Groups, each with its parent, weight and demand.
    fn any_groups() -> impl Strategy<Value = (Groups, Vec<f64>)> {
        let group = (any::<prop::sample::Index>(), 1.0..1000.0f64, 0.0..50.0f64);
        (0.0..50.0f64, prop::collection::vec(group, 0..12)).prop_map(|(first, list)| {
            let mut groups = Groups::new();
            let mut demand = vec![first];
            for (parent, weight, wanted) in list {
                groups.add(GroupId(parent.index(groups.0.len())), weight);
                demand.push(wanted);
            }
            (groups, demand)
        })
    }

    proptest! {
        /// No user gets more than it wants, and nothing is left while a user wants more.
        #[test]
        fn all_is_given_and_no_more((groups, demand) in any_groups(), cpus in 0.0..64.0f64) {
            let due = groups.due(&demand, cpus);
            for (due, demand) in due.iter().zip(&demand) {
                prop_assert!(*due >= 0.0 && *due <= demand + 1e-9, "{due} of {demand}");
            }
            let (given, wanted): (f64, f64) = (due.iter().sum(), demand.iter().sum());
            prop_assert!((given - wanted.min(cpus)).abs() < 1e-6, "{given} of {wanted}");
        }

        /// However much the others want, a group gets what it wants or its share by weight.
        #[test]
        fn a_share_is_guaranteed(
            others in prop::collection::vec((1.0..1000.0f64, 0.0..1e6f64), 0..12),
            weight in 1.0..1000.0f64,
            wanted in 0.0..64.0f64,
            cpus in 1.0..64.0f64,
        ) {
            let mut groups = Groups::new();
            groups.add(GroupId::ROOT, weight);
            let mut demand = vec![0.0, wanted];
            for (weight, wanted) in &others {
                groups.add(GroupId::ROOT, *weight);
                demand.push(*wanted);
            }
            let all: f64 = weight + others.iter().map(|(weight, _)| weight).sum::<f64>();
            let guaranteed = wanted.min(cpus * weight / all);
            let due = groups.due(&demand, cpus)[1];
            prop_assert!(due >= guaranteed - 1e-9, "{due} of {guaranteed}");
        }
    }
}

//! Which processors to take: as few and as whole parts of the machine as possible.
//!
//! In: a layout, those that are free, how many are wanted. Out: the chosen ones, the same as
//! upstream's `takeByTopologyNUMAPacked` for the same question. Whole NUMA nodes and sockets first,
//! then, where asked for, caches, then whole cores, then what is left, always from where the least
//! is free. Refuses: giving a processor that is not free. Upstream does, on machines whose sockets
//! or cores are not all of one size (ADR 0041).

use super::{CpuLayout, CpuSet, layout::Groups};

/// In which order single processors are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuOrder {
    /// Core after core.
    Packed,
    /// By number, so that neighbours are different cores on most machines.
    Spread,
}

/// Whether caches that only some cores share are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheAlignment {
    /// They are not.
    Ignored,
    /// As many as possible come from as few caches as possible.
    Preferred,
}

/// Why processors could not be taken, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TakeError {
    /// There are too few.
    #[error(
        "not enough cpus available to satisfy request: requested={requested}, available={available}"
    )]
    TooFew {
        /// How many were wanted.
        requested: usize,
        /// How many are free.
        available: usize,
    },
    /// There are enough, but the search ended short of them.
    #[error("failed to allocate cpus")]
    Failed,
}

/// Takes `n` of the free processors.
pub fn take_packed(
    layout: &CpuLayout,
    free: &CpuSet,
    n: usize,
    order: CpuOrder,
    caches: CacheAlignment,
) -> Result<CpuSet, TakeError> {
    let mut taking = Taking::new(layout, free, n);
    if taking.is_done() {
        return Ok(taking.taken);
    }
    if n > taking.free.len() {
        return Err(TakeError::TooFew { requested: n, available: free.len() });
    }
    // What is larger goes first: a NUMA node with several sockets, or a socket with several nodes.
    if taking.is_node_first() {
        taking.whole_nodes();
        taking.whole_sockets();
    } else {
        taking.whole_sockets();
        taking.whole_nodes();
    }
    if caches == CacheAlignment::Preferred && !taking.is_done() {
        taking.caches();
    }
    if order == CpuOrder::Packed && !taking.is_done() {
        taking.whole_cores();
    }
    if !taking.is_done() {
        taking.single(order);
    }
    if taking.is_done() { Ok(taking.taken) } else { Err(TakeError::Failed) }
}

/// A choice in the making.
pub(super) struct Taking<'a> {
    layout: &'a CpuLayout,
    /// What can still be taken.
    pub(super) free: CpuSet,
    /// How many are still wanted.
    pub(super) n_wanted: usize,
    /// What was taken.
    pub(super) taken: CpuSet,
}

impl<'a> Taking<'a> {
    pub(super) fn new(layout: &'a CpuLayout, free: &CpuSet, n: usize) -> Self {
        let free = free.intersection(&layout.all);
        Self { layout, free, n_wanted: n, taken: CpuSet::EMPTY }
    }

    pub(super) fn is_done(&self) -> bool {
        self.n_wanted == 0
    }

    /// Takes those of `cpus` that are free.
    pub(super) fn take(&mut self, cpus: &CpuSet) {
        let cpus = cpus.intersection(&self.free);
        self.free = self.free.difference(&cpus);
        self.n_wanted = self.n_wanted.saturating_sub(cpus.len());
        self.taken = self.taken.union(&cpus);
    }

    fn is_node_first(&self) -> bool {
        self.layout.sockets.len() >= self.layout.nodes.len()
    }

    /// Those groups that have something free, within `within` if that is given: the ones with the
    /// least free come first.
    fn sorted(&self, groups: &Groups, within: Option<&CpuSet>) -> Vec<u32> {
        let here = within.map(|it| it.intersection(&self.free));
        let here = here.as_ref().unwrap_or(&self.free);
        let some = groups.iter().filter(|(_, cpus)| cpus.n_common(here) > 0);
        let mut ids: Vec<(usize, u32)> =
            some.map(|(id, cpus)| (cpus.n_common(&self.free), *id)).collect();
        ids.sort_unstable();
        ids.into_iter().map(|(_, id)| id).collect()
    }

    pub(super) fn nodes(&self) -> Vec<u32> {
        let layout = self.layout;
        if self.is_node_first() {
            return self.sorted(&layout.nodes, None);
        }
        let sockets = self.sorted(&layout.sockets, None).into_iter();
        sockets.flat_map(|it| self.sorted(&layout.nodes, layout.sockets.get(&it))).collect()
    }

    fn sockets(&self) -> Vec<u32> {
        let layout = self.layout;
        if !self.is_node_first() {
            return self.sorted(&layout.sockets, None);
        }
        let nodes = self.sorted(&layout.nodes, None).into_iter();
        nodes.flat_map(|it| self.sorted(&layout.sockets, layout.nodes.get(&it))).collect()
    }

    fn cores(&self) -> Vec<u32> {
        let layout = self.layout;
        let (outer, groups) = match self.is_node_first() {
            true => (self.sockets(), &layout.sockets),
            false => (self.nodes(), &layout.nodes),
        };
        outer.into_iter().flat_map(|it| self.sorted(&layout.cores, groups.get(&it))).collect()
    }

    fn sorted_caches(&self) -> Vec<u32> {
        let layout = self.layout;
        let nodes = self.nodes().into_iter();
        nodes.flat_map(|it| self.sorted(&layout.caches, layout.nodes.get(&it))).collect()
    }

    /// Takes each of these groups that has `whole` processors free and is not larger than what is
    /// wanted. Which of them are whole is settled before the first is taken.
    fn take_whole(
        &mut self,
        ids: Vec<u32>,
        groups: &'a Groups,
        is_whole: impl Fn(&CpuSet, usize) -> bool,
    ) {
        let groups = ids.iter().filter_map(|id| groups.get(id));
        let whole: Vec<&CpuSet> =
            groups.filter(|it| is_whole(it, it.n_common(&self.free))).collect();
        for cpus in whole {
            if self.n_wanted >= cpus.len() {
                self.take(cpus);
            }
        }
    }

    fn whole_nodes(&mut self) {
        let layout = self.layout;
        self.take_whole(self.nodes(), &layout.nodes, |cpus, n_free| n_free == cpus.len());
    }

    fn whole_sockets(&mut self) {
        let layout = self.layout;
        let whole = layout.cpus_per_socket();
        self.take_whole(self.sockets(), &layout.sockets, |_, n_free| n_free == whole);
    }

    fn whole_cores(&mut self) {
        let layout = self.layout;
        let whole = layout.cpus_per_core();
        self.take_whole(self.cores(), &layout.cores, |_, n_free| n_free == whole);
    }

    fn whole_caches(&mut self) {
        let layout = self.layout;
        self.take_whole(self.sorted_caches(), &layout.caches, |cpus, n_free| n_free == cpus.len());
    }

    fn caches(&mut self) {
        let whole = self.layout.cpus_per_cache();
        for cache in self.sorted_caches() {
            if self.n_wanted >= whole {
                self.whole_caches();
            }
            if self.is_done() {
                return;
            }
            self.part_of_cache(cache);
            if self.is_done() {
                return;
            }
        }
    }

    /// Takes all that is wanted from one cache, by whole cores, if it is there.
    fn part_of_cache(&mut self, cache: u32) {
        let layout = self.layout;
        let per_core = layout.cpus_per_core();
        let Some(cpus) = layout.caches.get(&cache).filter(|_| per_core > 0) else {
            return;
        };
        let here = cpus.intersection(&self.free);
        let cores = layout.cores.values().filter(|core| core.n_common(&here) > 0);
        let cores = cores.take(self.n_wanted.div_ceil(per_core));
        let all = cores.fold(CpuSet::EMPTY, |all, core| all.union(core));
        let mut found = all.intersection(&self.free);
        // An odd number leaves one processor of the last core.
        if !self.n_wanted.is_multiple_of(2) && per_core > 1 && found.len() > self.n_wanted {
            found = found.iter().take(found.len() - 1).collect();
        }
        if found.len() == self.n_wanted {
            self.take(&found);
        }
    }

    fn single(&mut self, order: CpuOrder) {
        let layout = self.layout;
        let (ids, groups) = match order {
            CpuOrder::Packed => (self.cores(), &layout.cores),
            CpuOrder::Spread => (self.sockets(), &layout.sockets),
        };
        let groups = ids.iter().filter_map(|id| groups.get(id));
        let free = self.free.clone();
        let cpus: Vec<u32> =
            groups.flat_map(|it| it.intersection(&free).iter().collect::<Vec<_>>()).collect();
        for cpu in cpus {
            if self.is_done() {
                return;
            }
            self.take(&CpuSet::from_iter([cpu]));
        }
    }
}

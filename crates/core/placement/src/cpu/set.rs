//! A set of processors, as the kernel and upstream's files write it: `0-3,8`.

use std::fmt;

/// Numbers at or above this one are refused: more than any kernel can be built for.
const LIMIT: u32 = 1 << 16;

/// Numbers of processors, or of what they hang together in: cores, sockets, NUMA nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CpuSet {
    /// One bit each; the last word is never zero, so that equal sets are equal values.
    words: Vec<u64>,
}

/// Why a text is not a set of processors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid set of CPUs {text:?}")]
pub struct CpuSetError {
    text: String,
}

impl CpuSet {
    /// No processor at all.
    pub const EMPTY: Self = Self { words: Vec::new() };

    /// Reads a list such as `0-3,8`; an empty text is the empty set.
    pub fn parse(text: &str) -> Result<Self, CpuSetError> {
        let bad = || CpuSetError { text: text.chars().take(200).collect() };
        let mut set = Self::EMPTY;
        if text.is_empty() {
            return Ok(set);
        }
        for range in text.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let number = |digits: &str| {
                let is_number = digits.bytes().all(|it| it.is_ascii_digit());
                let number = digits.parse::<u32>().ok().filter(|it| *it < LIMIT);
                number.filter(|_| is_number).ok_or_else(bad)
            };
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(bad());
            }
            (first..=last).for_each(|cpu| set.insert(cpu));
        }
        Ok(set)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| count(*word)).sum()
    }

    /// True for the empty set.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// True when the processor is in it.
    pub fn contains(&self, cpu: u32) -> bool {
        let (word, bit) = place(cpu);
        self.words.get(word).is_some_and(|it| it & bit != 0)
    }

    /// Puts a processor in.
    pub fn insert(&mut self, cpu: u32) {
        let (word, bit) = place(cpu);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= bit;
    }

    /// Those in either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let (long, short) = match self.words.len() >= other.words.len() {
            true => (self, other),
            false => (other, self),
        };
        let mut words = long.words.clone();
        words.iter_mut().zip(&short.words).for_each(|(word, more)| *word |= more);
        Self { words }
    }

    /// Those in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let words = self.words.iter().zip(&other.words).map(|(one, two)| one & two);
        Self::trimmed(words.collect())
    }

    /// Those in this one only.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let others = other.words.iter().copied().chain(std::iter::repeat(0));
        let words = self.words.iter().zip(others).map(|(one, two)| one & !two);
        Self::trimmed(words.collect())
    }

    /// How many are in both, without making the set.
    pub fn n_common(&self, other: &Self) -> usize {
        self.words.iter().zip(&other.words).map(|(one, two)| count(one & two)).sum()
    }

    /// True when all of them are in the other set too.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.n_common(other) == self.len()
    }

    /// The numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        let words = (0_u32..).step_by(64).zip(&self.words);
        words.flat_map(|(base, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros())?;
                rest &= rest - 1;
                Some(base + bit)
            })
        })
    }

    fn trimmed(mut words: Vec<u64>) -> Self {
        while words.last() == Some(&0) {
            words.pop();
        }
        Self { words }
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<T: IntoIterator<Item = u32>>(cpus: T) -> Self {
        let mut set = Self::EMPTY;
        cpus.into_iter().for_each(|cpu| set.insert(cpu));
        set
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if(|next| *next == last + 1) {
                last = next;
            }
            match first == last {
                true => write!(f, "{separator}{first}")?,
                false => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

fn place(cpu: u32) -> (usize, u64) {
    let word = usize::try_from(cpu / 64).unwrap_or(usize::MAX);
    (word, 1 << (cpu % 64))
}

fn count(word: u64) -> usize {
    usize::try_from(word.count_ones()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_written_as_the_kernel_writes_it() {
        for text in ["", "0", "0-1", "0,2", "0-3,8,62-65,255"] {
            assert_eq!(CpuSet::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(CpuSet::parse("3,1,2,2").unwrap().to_string(), "1-3");
    }

    #[test]
    fn what_is_no_set_is_refused() {
        for text in ["a", "-1", "1-", "3-1", "1,,2", " 1", "1-2-3", "65536", "0-99999999999", "+1"]
        {
            let error = CpuSet::parse(text).unwrap_err().to_string();
            assert_eq!(error, format!("invalid set of CPUs {text:?}"));
        }
    }

    #[test]
    fn sets_are_joined_cut_and_taken_away() {
        let set = |text: &str| CpuSet::parse(text).unwrap();
        assert_eq!(set("0-3").union(&set("2-70")), set("0-70"));
        assert_eq!(set("2-70").union(&set("0-3")), set("0-70"));
        assert_eq!(set("0-3,70").intersection(&set("2-5")), set("2-3"));
        assert_eq!(set("0-3,70").difference(&set("70")), set("0-3"));
        assert_eq!(set("70").difference(&set("70")), CpuSet::EMPTY);
        assert_eq!(set("0-3,70").n_common(&set("3,70-80")), 2);
        assert!(set("1,70").is_subset(&set("0-70")) && !set("1,71").is_subset(&set("0-70")));
        assert_eq!(set("0-3,70").len(), 5);
        assert!(set("70").contains(70) && !set("70").contains(7) && !set("1").contains(700));
    }
}

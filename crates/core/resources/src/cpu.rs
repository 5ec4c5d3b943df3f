//! CPU amounts in the kernel's two currencies: weights and quotas.

/// The smallest weight the kernel takes.
pub const MIN_SHARES: u64 = 2;
const MAX_SHARES: u64 = 262_144;
const SHARES_PER_CPU: i64 = 1024;
const MILLI_PER_CPU: i64 = 1000;
/// The kernel refuses quotas below a millisecond.
const MIN_QUOTA_MICROS: i64 = 1000;

/// Weight in cgroup v1's scale; asking for nothing gives the smallest weight.
pub fn milli_cpu_to_shares(milli: i64) -> u64 {
    let shares = milli.saturating_mul(SHARES_PER_CPU) / MILLI_PER_CPU;
    u64::try_from(shares).unwrap_or(0).clamp(MIN_SHARES, MAX_SHARES)
}

/// The thousandths of a CPU that a weight stands for, rounded up so that they survive the way
/// through shares and back.
pub fn shares_to_milli_cpu(shares: u64) -> i64 {
    if shares < MIN_SHARES {
        return 0;
    }
    let shares = i64::try_from(shares).unwrap_or(i64::MAX);
    (shares.saturating_mul(MILLI_PER_CPU) + SHARES_PER_CPU - 1) / SHARES_PER_CPU
}

/// Microseconds of CPU time per period; zero thousandths give zero, which means no bound.
pub fn milli_cpu_to_quota(milli: i64, period_micros: i64) -> i64 {
    if milli == 0 {
        return 0;
    }
    (milli.saturating_mul(period_micros) / MILLI_PER_CPU).max(MIN_QUOTA_MICROS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_stay_within_the_kernels_bounds() {
        for (milli, shares) in [
            (0, 2),
            (1, 2),
            (2, 2),
            (100, 102),
            (200, 204),
            (1000, 1024),
            (1500, 1536),
            (256_000, 262_144),
            (512_000, 262_144),
            (i64::MAX, 262_144),
        ] {
            assert_eq!(milli_cpu_to_shares(milli), shares, "{milli}m");
        }
    }

    #[test]
    fn weights_lead_back_to_what_was_asked_for() {
        for (shares, milli) in [(0, 0), (1, 0), (2, 2), (102, 100), (1024, 1000), (1536, 1500)] {
            assert_eq!(shares_to_milli_cpu(shares), milli, "{shares}");
        }
    }

    #[test]
    fn quotas_follow_the_period_and_have_a_floor() {
        for (milli, period, quota) in [
            (0, 100_000, 0),
            (1, 100_000, 1000),
            (10, 100_000, 1000),
            (200, 100_000, 20_000),
            (500, 100_000, 50_000),
            (1500, 100_000, 150_000),
            (200, 5000, 1000),
            (500, 10_000, 5000),
        ] {
            assert_eq!(milli_cpu_to_quota(milli, period), quota, "{milli}m of {period}");
        }
    }
}

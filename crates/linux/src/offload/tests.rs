use std::sync::mpsc;

use tokio::time::timeout;

use super::*;

/// More than the runtime had threads for everything together, once.
const MANY: usize = 20;
const SHORT: Duration = Duration::from_millis(5);

/// Work that hangs until its lever is dropped.
fn stuck() -> (mpsc::Sender<()>, impl FnOnce() -> Result<(), HostError> + Send + 'static) {
    let (lever, held) = mpsc::channel::<()>();
    let work = move || {
        held.recv().ok();
        Ok(())
    };
    (lever, work)
}

fn job(attempt: &str) -> Job {
    Job::on(Pool::Mounts, attempt).within(SHORT)
}

#[tokio::test]
async fn a_call_that_hangs_is_given_up_and_reported_as_worth_a_later_try() {
    let (_lever, work) = stuck();
    let error = job("stat /mnt/dead").run_on(&Threads::new(1), work).await.unwrap_err();
    assert_eq!(error.retry, Retry::Later);
    assert_eq!(error.attempt, "stat /mnt/dead");
    assert_eq!(error.cause, "no answer within 0 s");
}

/// Each kind of work in turn hangs more often than it has threads; every other kind goes on at once.
#[tokio::test]
async fn work_of_one_kind_that_hangs_leaves_the_other_kinds_their_threads() {
    for (stuck_pool, ..) in POOLS {
        let all = POOLS.map(|(_, _, size)| Threads::new(size));
        let at = |pool: Pool| POOLS.iter().position(|(it, ..)| *it == pool).unwrap();
        let mut levers = Vec::new();
        for n in 0..MANY.max(POOLS[at(stuck_pool)].2 + 1) {
            let (lever, work) = stuck();
            levers.push(lever);
            let hanging = Job::on(stuck_pool, n).within(SHORT);
            assert!(hanging.run_on(&all[at(stuck_pool)], work).await.is_err());
        }
        for (pool, ..) in POOLS.into_iter().filter(|(pool, ..)| *pool != stuck_pool) {
            let done = Job::on(pool, "work").run_on(&all[at(pool)], || Ok(7)).await;
            assert_eq!(done.unwrap(), 7, "{pool:?} beside {stuck_pool:?}");
        }
        let full = job("one more").run_on(&all[at(stuck_pool)], || Ok(())).await.unwrap_err();
        assert_eq!(full.cause, "no thread was free within 0 s", "{stuck_pool:?}");
        levers.clear();
        let after = Job::on(stuck_pool, "after").run_on(&all[at(stuck_pool)], || Ok(())).await;
        assert!(after.is_ok(), "{stuck_pool:?} once the kernel let go");
    }
}

#[tokio::test]
async fn trying_again_at_what_hangs_takes_no_second_thread() {
    let threads = Threads::new(2);
    let (lever, work) = stuck();
    assert!(job("first").alone("pod/volume").run_on(&threads, work).await.is_err());
    for _ in 0..MANY {
        let again = job("again").alone("pod/volume").run_on(&threads, || Ok(())).await;
        assert_eq!(again.unwrap_err().cause, "an earlier attempt did not end within 0 s");
    }
    assert_eq!(threads.free.available_permits(), 1);
    let other = Job::on(Pool::Mounts, "other").alone("pod/other").run_on(&threads, || Ok(1)).await;
    assert_eq!(other.unwrap(), 1);
    drop(lever);
    let after = Job::on(Pool::Mounts, "after").alone("pod/volume").run_on(&threads, || Ok(2)).await;
    assert_eq!(after.unwrap(), 2);
    // What hung gives up its turn first and its key a moment later, on a thread of its own.
    let forgotten = async {
        loop {
            drop(threads.turns_of("new"));
            if threads.turns.lock().unwrap().len() == 1 {
                break;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, forgotten).await.expect("keys that nobody holds are forgotten");
}

#[tokio::test]
async fn work_that_nobody_waits_for_any_more_never_runs() {
    let threads = Threads::new(1);
    let (lever, work) = stuck();
    assert!(job("holds the thread").run_on(&threads, work).await.is_err());
    let (sender, ran) = mpsc::channel::<()>();
    let queued = job("queued").run_on(&threads, move || {
        sender.send(()).ok();
        Ok(())
    });
    assert!(queued.await.is_err());
    drop(lever);
    // Whoever comes next has the only thread; what was queued before is gone.
    Job::on(Pool::Mounts, "next").run_on(&threads, || Ok(())).await.unwrap();
    assert_eq!(ran.try_recv(), Err(mpsc::TryRecvError::Disconnected));
}

#[tokio::test]
async fn a_pool_that_stays_full_is_told() {
    let threads = Threads::new(1);
    let (lever, work) = stuck();
    assert!(job("hangs").run_on(&threads, work).await.is_err());
    assert!(!threads.is_stuck(), "it has just begun");
    let long_ago = Instant::now().checked_sub(DEADLINE).unwrap();
    *threads.full_since.lock().unwrap() = Some(long_ago);
    assert!(threads.is_stuck());
    drop(lever);
    Job::on(Pool::Mounts, "next").run_on(&threads, || Ok(())).await.unwrap();
    assert!(!threads.is_stuck(), "a thread has come back");
    assert_eq!(PoolHealth.check(), Ok(()));
}

#[test]
fn refusals_know_whether_trying_again_can_help() {
    let check = |errno: Errno, retry: Retry| {
        assert_eq!(refused("try", &io::Error::from(errno)).retry, retry, "{errno}");
    };
    check(Errno::BUSY, Retry::Later);
    check(Errno::NOSPC, Retry::Later);
    check(Errno::INTR, Retry::Now);
    check(Errno::INVAL, Retry::Never);
    check(Errno::NAMETOOLONG, Retry::Never);
}

//! Facts about the pool. A test that waits has a time limit, so that a lost wake-up fails and does
//! not hang; the limit is generous, for machines that are busy.

use super::*;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, mpsc};

const LONG: Duration = Duration::from_secs(60);

fn pool(threads: usize, limit_queue: usize) -> Pool {
    let settings = PoolSettings { threads, limit_queue, name: "test".into(), ..Default::default() };
    Pool::new(settings).unwrap()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < deadline, "still not so: {what}");
        thread::sleep(Duration::from_micros(100));
    }
}

/// Fails when `work` takes for ever.
fn in_time<R: Send + 'static>(what: &str, work: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(LONG).unwrap_or_else(|_| panic!("hangs or panics: {what}"))
}

/// A job that occupies a thread until this is dropped.
struct Occupied {
    started: mpsc::Receiver<()>,
    _release: mpsc::Sender<()>,
}

fn submit_occupier(pool: &Pool) -> Occupied {
    let (release, released) = mpsc::channel();
    let (sender, started) = mpsc::channel();
    let occupied = pool.try_run(move || {
        let _ = sender.send(());
        let _ = released.recv();
    });
    assert!(occupied.is_ok());
    Occupied { started, _release: release }
}

fn occupy(pool: &Pool) -> Occupied {
    let occupied = submit_occupier(pool);
    occupied.started.recv_timeout(LONG).expect("the job starts");
    occupied
}

/// Occupies the only thread, and has it occupied again, with `job` queued behind. When the first is
/// dropped, the thread moves the rest to the front of the queue and takes the second.
fn occupy_twice(pool: &Pool, job: Job) -> (Occupied, Occupied) {
    let first = occupy(pool);
    let second = submit_occupier(pool);
    assert!(pool.submit(job).is_ok());
    (first, second)
}

/// A job that adds its number to a list when it runs, and another that does when it is dropped.
fn recorder(list: &Arc<Mutex<Vec<u32>>>) -> impl Fn(u32) -> Job + use<> {
    let list = Arc::clone(list);
    move |number| {
        let list = Arc::clone(&list);
        Box::new(move || list.lock().unwrap().push(number))
    }
}

fn counts_in(count: &Arc<AtomicUsize>) -> impl Fn() + Send + use<> {
    let count = Arc::clone(count);
    move || {
        count.fetch_add(1, Ordering::SeqCst);
    }
}

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn g4_threads_are_not_pinned_with_whoever_starts_them() {
    let before = Processors::of_this_thread().unwrap();
    let of_a_job = in_time("a pool of a pinned thread", || {
        coracle_demux::pin_thread(0).unwrap();
        let pool = pool(2, 2);
        let (sender, receiver) = mpsc::channel();
        let look = move || sender.send(Processors::of_this_thread().unwrap()).unwrap();
        assert!(pool.try_run(look).is_ok());
        receiver.recv_timeout(LONG).expect("the job runs")
    });
    assert_eq!(of_a_job, before);
}

#[test]
fn g2_full_queue_refuses_and_gives_the_job_back() {
    let pool = pool(1, 2);
    let release = occupy(&pool);
    let list = Arc::default();
    let record = recorder(&list);
    assert!(pool.submit(record(1)).is_ok());
    assert!(pool.submit(record(2)).is_ok(), "the limit itself fits");
    let job = pool.submit(record(3)).expect_err("limit + 1 does not");
    assert_eq!((pool.queue_len(), pool.stats().refused), (2, 1));
    job();
    assert_eq!(*list.lock().unwrap(), [3], "it is the same job");

    drop(release);
    wait_until("the queue is empty", || pool.queue_len() == 0);
    assert!(pool.submit(record(4)).is_ok(), "there is room again");
    wait_until("all have run", || pool.stats().finished == 4);
    assert_eq!(*list.lock().unwrap(), [3, 1, 2, 4]);
}

#[test]
fn g2_limit_holds_while_jobs_sit_at_both_ends_of_the_queue() {
    let pool = pool(1, 3);
    let (first, second) = occupy_twice(&pool, Box::new(|| ()));
    drop(first);
    second.started.recv_timeout(LONG).unwrap();
    assert_eq!(pool.queue_len(), 1);
    assert!(pool.try_run(|| ()).is_ok());
    assert!(pool.try_run(|| ()).is_ok());
    assert!(pool.try_run(|| ()).is_err());
    assert_eq!((pool.queue_len(), pool.stats().queue_len_max), (3, 3));
}

#[test]
fn g2_queue_length_is_visible() {
    let pool = pool(2, 100);
    let releases = [occupy(&pool), occupy(&pool)];
    assert_eq!((pool.queue_len(), pool.running(), pool.threads()), (0, 2, 2));
    for waiting in 1..=10 {
        assert!(pool.try_run(|| ()).is_ok());
        assert_eq!(pool.queue_len(), waiting);
    }
    drop(releases);
    wait_until("all have run", || pool.stats().finished == 12);
    assert_eq!((pool.queue_len(), pool.running()), (0, 0));
    let expected =
        PoolStats { submitted: 12, finished: 12, queue_len_max: 10, ..Default::default() };
    assert_eq!(pool.stats(), expected);
}

#[test]
fn g2_drop_oldest_makes_room_for_the_new_job() {
    let settings = PoolSettings {
        threads: 1,
        limit_queue: 2,
        overload: Overload::DropOldest,
        ..Default::default()
    };
    let pool = Pool::new(settings).unwrap();
    let release = occupy(&pool);
    let list = Arc::default();
    let record = recorder(&list);
    let dropped = Arc::new(AtomicUsize::new(0));
    for number in 1..=5 {
        let (job, on_drop) = (record(number), OnDrop(counts_in(&dropped)));
        let submitted = pool.try_run(move || {
            let _on_drop = on_drop;
            job();
        });
        assert!(submitted.is_ok());
        assert_eq!(dropped.load(Ordering::SeqCst), number.saturating_sub(2) as usize);
    }
    assert_eq!((pool.queue_len(), pool.stats().dropped, pool.stats().refused), (2, 3, 0));
    drop(release);
    wait_until("the others have run", || pool.stats().finished == 3);
    assert_eq!(*list.lock().unwrap(), [4, 5]);
}

#[test]
fn g2_drop_oldest_takes_from_the_front_of_the_queue_first() {
    let settings = PoolSettings {
        threads: 1,
        limit_queue: 3,
        overload: Overload::DropOldest,
        ..Default::default()
    };
    let pool = Pool::new(settings).unwrap();
    let list = Arc::default();
    let record = recorder(&list);
    let (first, second) = occupy_twice(&pool, record(1)); // now 1 is at the front
    drop(first);
    second.started.recv_timeout(LONG).unwrap();
    for number in 2..=5 {
        assert!(pool.submit(record(number)).is_ok());
    }
    assert_eq!((pool.queue_len(), pool.stats().dropped, pool.stats().queue_len_max), (3, 2, 3));
    drop(second);
    wait_until("the others have run", || pool.stats().finished == 5);
    assert_eq!(*list.lock().unwrap(), [3, 4, 5]);
}

#[test]
fn g2_dropped_job_that_panics_does_not_harm_the_submitter() {
    let settings = PoolSettings {
        threads: 1,
        limit_queue: 1,
        overload: Overload::DropOldest,
        ..Default::default()
    };
    let pool = Pool::new(settings).unwrap();
    let release = occupy(&pool);
    let bomb = OnDrop(|| panic!("dropped (this panic belongs to a test)"));
    assert!(pool.try_run(move || drop(bomb)).is_ok());
    assert!(pool.try_run(|| ()).is_ok());
    assert_eq!(pool.stats().dropped, 1);
    drop(release);
}

#[test]
fn g2_panicking_job_does_not_kill_its_thread() {
    let pool = pool(1, 100);
    for _ in 0..5 {
        assert!(pool.try_run(|| panic!("this panic belongs to a test")).is_ok());
    }
    let (sender, receiver) = mpsc::channel();
    let name = move || sender.send(thread::current().name().map(str::to_owned)).unwrap();
    assert!(pool.try_run(name).is_ok());
    assert_eq!(receiver.recv_timeout(LONG).unwrap().as_deref(), Some("test-0"));
    wait_until("all are counted", || pool.stats().finished == 6);
    assert_eq!((pool.stats().panicked, pool.threads(), pool.running()), (5, 1, 0));
}

#[test]
fn g2_panic_value_that_panics_does_not_kill_its_thread() {
    let pool = pool(1, 100);
    let bomb = OnDrop(|| panic!("dropped (this panic belongs to a test)"));
    assert!(pool.try_run(move || std::panic::panic_any(bomb)).is_ok());
    assert!(pool.try_run(|| ()).is_ok());
    wait_until("both are counted", || pool.stats().finished == 2);
    assert_eq!((pool.stats().panicked, pool.threads()), (1, 1));
}

#[test]
fn g2_settings_out_of_range_are_refused_with_a_cure() {
    let refused = |settings| Pool::new(settings).unwrap_err().to_string();
    let good = PoolSettings::default;
    assert!(refused(PoolSettings { threads: 0, ..good() }).ends_with("use 1 to 1024"));
    assert!(refused(PoolSettings { threads: 1025, ..good() }).ends_with("use 1 to 1024"));
    assert!(refused(PoolSettings { limit_queue: 0, ..good() }).ends_with("use 1 or more"));
    assert!(refused(PoolSettings { name: "a\0b".into(), ..good() }).contains("zero bytes"));
    assert!(refused(PoolSettings { name: String::new(), ..good() }).contains("zero bytes"));
    assert!(good().threads >= 4);
}

#[test]
fn jobs_start_in_order_with_one_thread() {
    let pool = pool(1, 100_000);
    let list = Arc::default();
    let record = recorder(&list);
    for number in 0..100_000 {
        assert!(pool.submit(record(number)).is_ok());
    }
    wait_until("all have run", || pool.stats().finished == 100_000);
    assert!(list.lock().unwrap().iter().copied().eq(0..100_000));
}

#[test]
fn threads_start_one_by_one_and_only_when_needed() {
    let pool = pool(3, 100);
    assert_eq!(pool.threads(), 0);
    for round in 1..=50 {
        assert!(pool.try_run(|| ()).is_ok());
        wait_until("it has run", || pool.stats().finished == round);
        wait_until("its thread sleeps", || pool.owner.shared.back.lock().sleeping == 1);
    }
    assert_eq!(pool.threads(), 1, "one was enough");
    let mut releases = vec![occupy(&pool)];
    assert_eq!(pool.threads(), 1, "the one there was is used");
    releases.push(occupy(&pool));
    releases.push(occupy(&pool));
    assert_eq!(pool.threads(), 3);
    assert!(pool.try_run(|| ()).is_ok());
    assert_eq!((pool.threads(), pool.queue_len()), (3, 1), "never more than the setting");
}

#[test]
fn a_burst_brings_up_every_thread() {
    // The jobs of a round end only when all of them run at once: if a job waits although a thread
    // sleeps, or could be started, the round never ends. The first round starts the threads.
    const THREADS: usize = 4;
    let pool = pool(THREADS, 100);
    for round in 0..3_000 {
        let running = Arc::new(AtomicUsize::new(0));
        for _ in 0..THREADS {
            let running = Arc::clone(&running);
            let job = move || {
                running.fetch_add(1, Ordering::SeqCst);
                let deadline = Instant::now() + LONG;
                while running.load(Ordering::SeqCst) < THREADS && Instant::now() < deadline {
                    thread::yield_now();
                }
            };
            assert!(pool.try_run(job).is_ok());
        }
        let what = format!("all {THREADS} jobs of round {round} run at once");
        wait_until(&what, || running.load(Ordering::SeqCst) == THREADS);
        if round % 2 == 0 {
            wait_until("all sleep", || pool.owner.shared.back.lock().sleeping == THREADS);
        }
    }
}

#[test]
fn no_wakeup_is_lost_between_empty_and_not_empty() {
    // Each producer waits for each of its jobs, so the queue is empty again and again, and a single
    // lost wake-up stops a producer for ever.
    const ROUNDS: u64 = 5_000;
    for (threads, producers) in [(1, 1), (1, 4), (2, 3), (4, 8)] {
        let pool = pool(threads, 100);
        let producers: Vec<_> = (0..producers)
            .map(|_| {
                let pool = pool.clone();
                thread::spawn(move || {
                    let (sender, receiver) = mpsc::channel();
                    for round in 0..ROUNDS {
                        let sender = sender.clone();
                        assert!(pool.try_run(move || sender.send(round).unwrap()).is_ok());
                        assert_eq!(receiver.recv_timeout(LONG), Ok(round), "a lost wake-up");
                    }
                })
            })
            .collect();
        let count = producers.len() as u64;
        for producer in producers {
            producer.join().unwrap();
        }
        wait_until("all are counted", || pool.stats().finished == count * ROUNDS);
    }
}

#[test]
fn many_producers_many_jobs_each_runs_once() {
    const JOBS: usize = 20_000;
    let pool = pool(4, 64);
    let runs: Vec<_> = (0..8 * JOBS).map(|_| Arc::new(AtomicUsize::new(0))).collect();
    let (sender, receiver) = mpsc::channel();
    for runs in runs.chunks(JOBS) {
        let (pool, runs, sender) = (pool.clone(), runs.to_vec(), sender.clone());
        thread::spawn(move || {
            for count in &runs {
                let mut job: Job = Box::new(counts_in(count));
                while let Err(refused) = pool.submit(job) {
                    job = refused;
                    thread::yield_now();
                }
            }
            sender.send(()).unwrap();
        });
    }
    for _ in 0..8 {
        receiver.recv_timeout(LONG).expect("a producer gets through");
    }
    wait_until("all have run", || pool.stats().finished == 8 * JOBS as u64);
    assert!(runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1));
    assert!(pool.stats().queue_len_max <= 64);
}

#[test]
fn stats_add_up_at_any_moment() {
    let settings = PoolSettings {
        threads: 2,
        limit_queue: 8,
        overload: Overload::DropOldest,
        ..Default::default()
    };
    let pool = Pool::new(settings).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let producer = {
        let (pool, done) = (pool.clone(), Arc::clone(&done));
        thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                assert!(pool.try_run(|| ()).is_ok());
            }
        })
    };
    for _ in 0..5_000 {
        let (front, back) = pool.owner.shared.lock_both();
        let inside = (front.running + front.queue.len() + back.queue.len()) as u64;
        assert_eq!(back.submitted, front.finished + back.dropped + inside);
        assert!(front.queue.len() + back.queue.len() <= 8);
    }
    done.store(true, Ordering::Relaxed);
    producer.join().unwrap();
}

#[test]
#[cfg(target_os = "linux")]
fn idle_threads_make_no_system_calls() {
    let settings = PoolSettings { threads: 2, name: "idlers".into(), ..Default::default() };
    let pool = Pool::new(settings).unwrap();
    drop([occupy(&pool), occupy(&pool)]);
    wait_until("both sleep", || pool.owner.shared.back.lock().sleeping == 2);
    let switches = || -> Vec<String> {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let statuses =
            tasks.filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
        let ours = statuses.filter(|status| status.starts_with("Name:\tidlers-"));
        ours.map(|status| status.lines().filter(|line| line.contains("ctxt")).collect()).collect()
    };
    // Give them time to get from the count of sleepers into the kernel.
    thread::sleep(Duration::from_millis(100));
    let before = switches();
    thread::sleep(Duration::from_millis(300));
    assert_eq!(before.len(), 2);
    assert_eq!(before, switches(), "a sleeping thread that never runs makes no system calls");
}

#[test]
fn shutdown_finishes_the_queue() {
    let pool = pool(2, 1000);
    let release = occupy(&pool);
    let ran = Arc::new(AtomicUsize::new(0));
    for _ in 0..1000 {
        assert!(pool.try_run(counts_in(&ran)).is_ok());
    }
    drop(release);
    let other = pool.clone();
    let leftover = in_time("shutdown", move || pool.shutdown(Instant::now() + LONG));
    assert_eq!(leftover, Leftover::default());
    assert_eq!(ran.load(Ordering::SeqCst), 1000);
    assert!(other.try_run(|| ()).is_err(), "no clone accepts any more");
    assert_eq!((other.threads(), other.stats().refused), (0, 1));
}

#[test]
fn shutdown_at_its_deadline_drops_what_waits_and_leaves_what_runs() {
    let pool = pool(1, 100);
    let release = occupy(&pool);
    let dropped = Arc::new(AtomicUsize::new(0));
    for _ in 0..3 {
        let on_drop = OnDrop(counts_in(&dropped));
        assert!(pool.try_run(move || drop(on_drop)).is_ok());
    }
    let other = pool.clone();
    let deadline = Instant::now() + Duration::from_millis(50);
    let leftover = in_time("shutdown", move || pool.shutdown(deadline));
    assert_eq!(leftover, Leftover { dropped: 3, running: 1 });
    assert_eq!((dropped.load(Ordering::SeqCst), other.stats().dropped), (3, 3));
    drop(release);
    wait_until("the stuck thread has ended", || other.threads() == 0);
    assert_eq!(other.stats().finished, 1);
}

#[test]
fn shutdown_of_an_unused_or_idle_pool_is_immediate() {
    let leftover = in_time("unused", || pool(4, 10).shutdown(Instant::now()));
    assert_eq!(leftover, Leftover::default());
    let idle = pool(2, 10);
    drop(occupy(&idle));
    wait_until("it sleeps", || idle.owner.shared.back.lock().sleeping == 1);
    let leftover = in_time("idle", move || idle.shutdown(Instant::now()));
    assert_eq!(leftover, Leftover::default(), "a thread that sleeps is not a job that runs");
}

#[test]
fn shutdown_from_a_job_does_not_wait_for_itself() {
    let pool = pool(2, 10);
    drop([occupy(&pool), occupy(&pool)]); // a second thread, too
    let (sender, receiver) = mpsc::channel();
    let inner = pool.clone();
    let job = move || sender.send(inner.shutdown(Instant::now() + LONG)).unwrap();
    assert!(pool.try_run(job).is_ok());
    assert_eq!(receiver.recv_timeout(LONG), Ok(Leftover::default()));
}

#[test]
fn drop_with_stuck_job_returns() {
    let pool = pool(1, 10);
    let release = occupy(&pool);
    let (sender, receiver) = mpsc::channel::<()>();
    assert!(pool.try_run(move || sender.send(()).unwrap()).is_ok());
    in_time("drop", move || drop(pool));
    let outcome = receiver.recv_timeout(LONG);
    assert_eq!(outcome, Err(mpsc::RecvTimeoutError::Disconnected), "dropped, not run");
    drop(release);
}

#[test]
fn drop_waits_for_a_job_that_is_about_to_finish() {
    let pool = pool(1, 10);
    let finished = Arc::new(AtomicBool::new(false));
    let (sender, started) = mpsc::channel();
    let job = {
        let finished = Arc::clone(&finished);
        move || {
            sender.send(()).unwrap();
            thread::sleep(Duration::from_millis(20));
            finished.store(true, Ordering::SeqCst);
        }
    };
    assert!(pool.try_run(job).is_ok());
    started.recv_timeout(LONG).unwrap();
    in_time("drop", move || drop(pool));
    assert!(finished.load(Ordering::SeqCst));
}

#[test]
fn drop_of_the_last_handle_inside_a_job_does_not_deadlock() {
    let pool = pool(1, 10);
    let shared = Arc::downgrade(&pool.owner.shared);
    let (sender, receiver) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let inner = pool.clone();
    let job = move || {
        released.recv().unwrap(); // until the other handle is gone
        drop(inner);
        sender.send(()).unwrap();
    };
    assert!(pool.try_run(job).is_ok());
    drop(pool);
    release.send(()).unwrap();
    receiver.recv_timeout(LONG).expect("the drop returns");
    wait_until("thread and pool are gone", || shared.strong_count() == 0);
}

#[test]
fn nothing_is_left_of_a_dropped_pool() {
    let pool = pool(3, 10);
    drop([occupy(&pool), occupy(&pool), occupy(&pool)]);
    let shared = Arc::downgrade(&pool.owner.shared);
    in_time("drop", move || drop(pool));
    assert_eq!(shared.strong_count(), 0, "the threads have been joined");
}

#[test]
fn pool_can_be_shared_between_threads() {
    fn check<T: Send + Sync + Clone + 'static>() {}
    check::<Pool>();
}

#[test]
fn patience_comes_after_a_row_of_short_sleeps_and_ends_with_a_long_one() {
    let mut patience = Patience::default();
    assert!(!patience.try_again());
    patience.short_sleeps = Patience::SHORT_SLEEPS;
    for _ in 0..2 {
        for _ in 0..Patience::LIMIT_TRIES {
            assert!(patience.try_again());
        }
        assert!(!patience.try_again(), "then it sleeps after all");
        patience.note_job();
    }
    patience.note_sleep(|| thread::sleep(Patience::SHORT_SLEEP));
    assert!(!patience.try_again());
}

use frostline_primitives::Lock;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Notify;

/// Limit on the number of open requests. As in TCP (RFC 5681), the limit grows by one per window of
/// successful requests and halves when the host is busy. The minimum is 1.
pub(crate) struct Window {
    /// Maximum size. [`Window::allow`] can set a lower one.
    max_size: f64,
    state: Lock<WindowState>,
    freed: Notify,
}

/// Separate windows for each host, because a busy host must not affect other hosts.
pub(super) struct HostWindows {
    requests: usize,
    hosts: Lock<HashMap<String, Arc<Window>>>,
}

impl HostWindows {
    /// Creates windows of up to `requests` requests each.
    pub(super) fn new(requests: usize) -> Self {
        Self {
            requests,
            hosts: Lock::default(),
        }
    }

    /// Returns the window of the host with this address.
    pub(super) fn window_for(&self, host: &str) -> Arc<Window> {
        let mut hosts = self.hosts.lock();
        let window = hosts.entry(host.to_owned());
        let window = window.or_insert_with(|| Arc::new(Window::new(self.requests, self.requests)));
        Arc::clone(window)
    }
}

struct WindowState {
    allowed: f64,
    size: f64,
    open: usize,
}

/// Permission for an open request, released on drop.
pub(crate) struct RequestPermit<'a>(&'a Window);

impl Window {
    /// Creates a window of `start` requests that grows up to `most`.
    pub(crate) fn new(start: usize, most: usize) -> Self {
        let max_size = most.max(1) as f64;
        Self {
            max_size,
            state: Lock::new(WindowState {
                allowed: max_size,
                size: (start.max(1) as f64).min(max_size),
                open: 0,
            }),
            freed: Notify::new(),
        }
    }

    /// Waits until another request may be opened.
    pub(crate) async fn open(&self) -> RequestPermit<'_> {
        loop {
            let freed = self.freed.notified();
            if self.try_open() {
                return RequestPermit(self);
            }
            freed.await;
        }
    }

    /// Records a successful request.
    pub(crate) fn went_well(&self) {
        let mut state = self.state.lock();
        state.size = (state.size + 1.0 / state.size).min(state.allowed);
        drop(state);
        self.freed.notify_one();
    }

    /// Records a refusal by a busy host.
    pub(crate) fn was_busy(&self) {
        let mut state = self.state.lock();
        state.size = (state.size / 2.0).max(1.0);
    }

    /// Limits the window to `requests`, up to the maximum from [`Window::new`]. Requests already open are not
    /// affected.
    pub(super) fn allow(&self, requests: usize) {
        let most = (requests.max(1) as f64).min(self.max_size);
        let mut state = self.state.lock();
        if most > state.allowed {
            // If the window had reached the previous limit, continue at the new limit.
            state.size += if state.size >= state.allowed {
                most - state.allowed
            } else {
                0.0
            };
        }
        state.allowed = most;
        state.size = state.size.min(most);
        drop(state);
        self.freed.notify_waiters();
    }

    fn try_open(&self) -> bool {
        let mut state = self.state.lock();
        let room = state.open < state.size as usize;
        state.open += usize::from(room);
        room
    }
}

impl Drop for RequestPermit<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.open = state.open.saturating_sub(1);
        drop(state);
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    fn permits(window: &Window) -> usize {
        let mut taken = Vec::new();
        while let Some(permit) = window.open().now_or_never() {
            taken.push(permit);
        }
        taken.len()
    }

    #[test]
    fn it_halves_when_a_host_is_busy_and_grows_again() {
        let window = Window::new(8, 10);
        assert_eq!(permits(&window), 8);
        window.was_busy();
        assert_eq!(permits(&window), 4);
        (0..5).for_each(|_| window.went_well());
        assert_eq!(permits(&window), 5);
        (0..500).for_each(|_| window.went_well());
        assert_eq!(permits(&window), 10);
        (0..9).for_each(|_| window.was_busy());
        assert_eq!(permits(&window), 1);
    }

    #[test]
    fn it_keeps_to_what_is_allowed_for_a_time() {
        let window = Window::new(8, 8);
        window.allow(3);
        assert_eq!(permits(&window), 3);
        (0..500).for_each(|_| window.went_well());
        assert_eq!(permits(&window), 3);
        window.allow(5);
        assert_eq!(permits(&window), 5);
        window.allow(100);
        assert_eq!(permits(&window), 8);
        window.was_busy();
        window.allow(6);
        assert_eq!(permits(&window), 4, "the host was busy");
        window.allow(0);
        assert_eq!(permits(&window), 1);
    }

    #[tokio::test]
    async fn a_permit_that_is_given_back_wakes_who_waits() {
        let window = std::sync::Arc::new(Window::new(1, 1));
        let held = window.open().await;
        let waiting = std::sync::Arc::clone(&window);
        let waiter = tokio::spawn(async move { drop(waiting.open().await) });
        tokio::task::yield_now().await;
        assert!(!waiter.is_finished());
        drop(held);
        waiter.await.unwrap();
    }
}

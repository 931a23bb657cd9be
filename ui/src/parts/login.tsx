/** The way back in, after a session has ended: the page is asked for again, and whoever guards it asks who we are. */
export function LogIn() {
  return (
    <a class="button" href={location.href} target="_self">
      Log in again
    </a>
  );
}

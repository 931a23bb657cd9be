"""A Django project with tasks, for the tests of `monque.django`."""

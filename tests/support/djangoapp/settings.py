"""Settings of the project; each test has a `TASKS` of its own."""

import os

import django

SECRET_KEY = "of these tests"
ALLOWED_HOSTS = ["*"]
USE_TZ = True
LOGGING_CONFIG = None
ROOT_URLCONF = "support.djangoapp.urls"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "monque.django",
    "support.djangoapp",
]
if django.VERSION < (6, 0):
    INSTALLED_APPS.append("django_tasks")
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ["MONQUE_TEST_SQLITE"],
        "OPTIONS": {"timeout": 20},
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
STATIC_URL = "static/"
TASKS = {
    "default": {
        "BACKEND": "monque.django.MonqueBackend",
        "QUEUES": ["default", "emails"],
        "OPTIONS": {"uri": os.environ.get("MONQUE_TEST_URI", "mongodb://localhost:1/unused")},
    }
}
